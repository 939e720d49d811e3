"use strict";

// make creates an element with text and children.
function make(tag, text, ...children) {
  const e = document.createElement(tag);
  if (text) e.textContent = text;
  e.append(...children);
  return e;
}

// resolve follows references of the document and cuts cycles.
function resolve(doc, schema, depth) {
  if (!schema) return null;
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    return depth > 4 ? name : resolve(doc, doc.components.schemas[name], depth + 1);
  }
  if (schema.properties) {
    const shape = {};
    for (const [name, part] of Object.entries(schema.properties)) {
      const optional = !(schema.required || []).includes(name);
      shape[name + (optional ? "?" : "")] = resolve(doc, part, depth + 1);
    }
    return shape;
  }
  if (schema.items) return [resolve(doc, schema.items, depth + 1)];
  if (schema.enum) return schema.enum.join(" | ");
  return [schema.type || "any"].flat().join(" | ") + (schema.format ? " (" + schema.format + ")" : "");
}

// show returns the operation as an element.
function show(doc, path, method, op) {
  const summary = make("summary", "", make("span", method.toUpperCase()), make("code", path), make("span", "  " + (op.summary || "")));
  summary.firstChild.className = "method";
  const body = make("details", "", summary);
  body.dataset.text = [op.operationId, path, op.summary].join(" ").toLowerCase();
  if (op.description) body.append(make("p", op.description));

  if (op.parameters) {
    const table = make("table");
    for (const p of op.parameters) {
      table.append(make("tr", "", make("td", "", make("code", p.name)), make("td", p.in), make("td", p.description || "")));
    }
    body.append(make("h4", "Parameters"), table);
  }
  for (const [media, content] of Object.entries((op.requestBody || {}).content || {})) {
    body.append(make("h4", "Request, " + media), make("pre", JSON.stringify(resolve(doc, content.schema, 0), null, 2)));
  }
  for (const [status, response] of Object.entries(op.responses || {})) {
    for (const [media, content] of Object.entries(response.content || {})) {
      if (media === "application/problem+json") continue;
      body.append(make("h4", "Reply " + status + ", " + media), make("pre", JSON.stringify(resolve(doc, content.schema, 0), null, 2)));
    }
  }
  return body;
}

async function main() {
  const target = document.getElementById("operations");
  const reply = await fetch("/v1/openapi.json");
  const doc = await reply.json();
  const tags = new Map();
  for (const [path, methods] of Object.entries(doc.paths)) {
    for (const [method, op] of Object.entries(methods)) {
      const tag = (op.tags || ["Other"])[0];
      if (!tags.has(tag)) tags.set(tag, []);
      tags.get(tag).push(show(doc, path, method, op));
    }
  }
  target.replaceChildren();
  for (const [tag, all] of tags) target.append(make("h2", tag), ...all);

  document.getElementById("filter").addEventListener("input", (event) => {
    const text = event.target.value.toLowerCase();
    for (const e of target.querySelectorAll("details")) e.hidden = !e.dataset.text.includes(text);
  });
}

main().catch((error) => {
  document.getElementById("operations").textContent = "The document could not be loaded: " + error;
});
