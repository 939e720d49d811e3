// A client of the REST API of Perdure. schema.ts is generated from the OpenAPI document of the
// server; paths, parameters, bodies and replies have its types.
import createFetchClient, { type Client } from "openapi-fetch";

import type { components, paths } from "./schema.js";

export type { components, paths } from "./schema.js";

/** Problem is an error of the server, as in RFC 9457. */
export type Problem = components["schemas"]["Problem"];

/** Options say which server to use, and who calls. */
export interface Options {
  /** The URL of the server, such as http://localhost:7800. */
  url: string;
  /** A key of a tenant, or an admin key. A development server needs none. */
  key?: string;
  /** The tenant; only with an admin key. */
  tenant?: string;
  /** The function that makes requests; fetch by default. */
  fetch?: (request: Request) => Promise<Response>;
}

/** Perdure is a client with one method per verb of HTTP: client.GET("/v1/executions"). */
export type Perdure = Client<paths>;

/** createClient returns a client of a server. */
export function createClient(options: Options): Perdure {
  const headers: Record<string, string> = {};
  if (options.key !== undefined) {
    headers["Authorization"] = `Bearer ${options.key}`;
  }
  if (options.tenant !== undefined) {
    headers["Perdure-Tenant"] = options.tenant;
  }
  return createFetchClient<paths>({ baseUrl: options.url, headers, ...(options.fetch ? { fetch: options.fetch } : {}) });
}
