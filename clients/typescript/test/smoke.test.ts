// The client talks to a real server, whose URL is in PERDURE_URL. scripts/clients.sh starts one.
import assert from "node:assert/strict";
import { test } from "node:test";

import { createClient } from "../src/index.js";

const url = process.env["PERDURE_URL"];

test("executions and batches", { skip: url === undefined ? "PERDURE_URL names no server" : false }, async () => {
  const client = createClient({ url: url! });
  const key = `ts-${Date.now()}`;

  const started = await client.POST("/v1/executions", { body: { workflow: "idle", key, input: { items: 3 }, labels: { lot: key } } });
  assert.equal(started.error, undefined);
  assert.equal(started.data?.existing, false);

  const path = { workflow: "idle", key };
  const described = await client.GET("/v1/executions/{workflow}/{key}", { params: { path } });
  assert.equal(described.data?.status, "running");
  assert.deepEqual(described.data?.input, { items: 3 });

  const listed = await client.GET("/v1/executions", { params: { query: { query: `label.lot = "${key}"`, limit: 10 } } });
  assert.deepEqual(listed.data?.items?.map((e) => e.key), [key]);

  const order = { id: key, verb: "terminate" as const, query: `label.lot = "${key}"`, reason: "smoke" };
  const dry = await client.POST("/v1/batches", { body: { ...order, dry_run: true } });
  assert.equal(dry.data?.progress.matched, 1);
  const batch = await client.POST("/v1/batches", { body: order });
  assert.equal(batch.response.status, 201);
  for (;;) {
    const now = await client.GET("/v1/batches/{id}", { params: { path: { id: key } } });
    assert.equal(now.error, undefined);
    if (now.data?.status === "completed") {
      assert.equal(now.data.progress.done, 1);
      break;
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }

  const ended = await client.GET("/v1/executions/{workflow}/{key}/result", { params: { path, query: { wait: "10s" } } });
  assert.equal(ended.data?.status, "terminated");

  const missing = await client.GET("/v1/executions/{workflow}/{key}", { params: { path: { workflow: "idle", key: "none" } } });
  assert.equal(missing.response.status, 404);
  assert.equal(missing.error?.kind, "not_found");
});
