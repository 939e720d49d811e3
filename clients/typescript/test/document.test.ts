// The OpenAPI document is valid by the official schema of OpenAPI 3.1.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { Validator } from "@seriousme/openapi-schema-validator";

const path = new URL("../../../../internal/restapi/testdata/openapi.json", import.meta.url);

test("the document is valid", async () => {
  const document = JSON.parse(await readFile(path, "utf8"));
  const validator = new Validator();
  const result = await validator.validate(document);
  assert.deepEqual(result.errors ?? [], []);
  assert.equal(result.valid, true);
  assert.equal(validator.version, "3.1");
});

test("a broken document is not valid", async () => {
  const document = JSON.parse(await readFile(path, "utf8"));
  document.paths["/v1/executions"].get.responses = [];
  const result = await new Validator().validate(document);
  assert.equal(result.valid, false);
});
