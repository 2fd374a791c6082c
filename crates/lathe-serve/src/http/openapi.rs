//! The OpenAPI document: what there is, with the limits of the model that is served.

use super::chat::TURNS;
use super::orders::{ANSWERS, LOGPROBS, STOPS, TEXTS};
use crate::Served;
use serde_json::{Value, json};

/// A field that may be null or have one of some schemas.
fn or_null(schema: Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// An answer of a status.
fn content(description: &str, kind: &str, schema: Value) -> Value {
    json!({"description": description, "content": {kind: {"schema": schema}}})
}

/// Answers that every path has.
fn responses(good: Value, errors: &[(&str, &str)]) -> Value {
    let mut all =
        json!({"200": good, "401": content("The key is missing or wrong.", "application/json", reference("Error"))});
    for (status, description) in errors {
        all[*status] = content(description, "application/json", reference("Error"));
        if *status == "429" {
            all[*status]["headers"] = json!({"Retry-After": {"schema": {"type": "string"}}});
        }
    }
    all
}

const WORK_ERRORS: &[(&str, &str)] = &[
    ("400", "The body is wrong."),
    ("404", "The model is not served."),
    ("408", "The body did not come in time."),
    ("413", "The body is too large."),
    ("429", "Too many requests wait already."),
    ("500", "The computation failed."),
    ("503", "The server is about to end."),
    ("504", "The request took too long."),
];

fn get(summary: &str, good: Value, errors: &[(&str, &str)]) -> Value {
    json!({"get": {"summary": summary, "responses": responses(good, errors)}})
}

fn post(summary: &str, body: &str, answer: &str, streams: bool) -> Value {
    let mut good = content("The answer.", "application/json", reference(answer));
    if streams {
        // The schema is that of each event.
        let event = json!({"type": "object", "required": ["data"], "properties": {"data": {"type": "string"}}});
        good["content"]["text/event-stream"] = json!({"schema": event});
    }
    let body = json!({"required": true, "content": {"application/json": {"schema": reference(body)}}});
    json!({"post": {"summary": summary, "requestBody": body, "responses": responses(good, WORK_ERRORS)}})
}

/// What completions and conversations have in common.
fn manner(served: &Served) -> Value {
    let number = |least: f64, most: f64| or_null(json!({"type": "number", "minimum": least, "maximum": most}));
    let flag = || or_null(json!({"type": "boolean"}));
    // Numbers of so many digits are tokens for sure.
    let digits = served.vocab().checked_ilog10().unwrap_or(0).max(1);
    let stop = json!({"type": "string", "minLength": 1});
    json!({
        "model": or_null(json!({"type": "string", "enum": [served.id]})),
        "n": or_null(json!({"type": "integer", "minimum": 1, "maximum": ANSWERS})),
        "temperature": number(0.0, 100.0),
        "top_p": number(0.0, 1.0),
        "top_k": or_null(json!({"type": "integer", "minimum": 0, "maximum": u32::MAX})),
        "repetition_penalty": number(0.01, 100.0),
        "presence_penalty": number(-2.0, 2.0),
        "frequency_penalty": number(-2.0, 2.0),
        "logit_bias": or_null(json!({"type": "object", "additionalProperties": false, "maxProperties": 1024,
            "patternProperties": {format!("^[0-9]{{1,{digits}}}$"): {"type": "number", "minimum": -100, "maximum": 100}}})),
        "seed": or_null(json!({"type": "integer", "minimum": i64::MIN, "maximum": i64::MAX})),
        "stop": or_null(json!({"anyOf": [stop, {"type": "array", "maxItems": STOPS, "items": stop}]})),
        "stream": flag(),
        "stream_options": or_null(json!({"type": "object", "properties": {"include_usage": flag()}})),
        "ignore_eos": flag(),
    })
}

fn with(mut base: Value, more: Value) -> Value {
    if let (Value::Object(base), Value::Object(more)) = (&mut base, more) {
        base.extend(more);
    }
    base
}

/// Texts of at least so many characters, or tokens, one or several.
fn texts(served: &Served, least: usize) -> Value {
    let most = served.window().unwrap_or(1 << 20);
    let token = json!({"type": "integer", "minimum": 0, "maximum": served.vocab().saturating_sub(1)});
    let tokens = json!({"type": "array", "minItems": 1, "maxItems": most, "items": token});
    let words = json!({"type": "string", "minLength": least});
    json!({"anyOf": [
        words,
        {"type": "array", "minItems": 1, "maxItems": TEXTS, "items": words},
        tokens,
        {"type": "array", "minItems": 1, "maxItems": TEXTS, "items": tokens},
    ]})
}

/// The document.
pub(super) fn document(served: &Served, max_tokens: usize) -> Value {
    let most_tokens = or_null(json!({"type": "integer", "minimum": 1, "maximum": max_tokens}));
    let usage = json!({"type": "object", "required": ["prompt_tokens", "total_tokens"]});
    let answer = |object: &str, choice: Value| {
        json!({
            "type": "object",
            "required": ["id", "object", "created", "model", "choices", "usage"],
            "properties": {
                "id": {"type": "string"},
                "object": {"type": "string", "enum": [object]},
                "created": {"type": "integer"},
                "model": {"type": "string"},
                "choices": {"type": "array", "items": choice},
                "usage": usage,
            },
        })
    };
    let finish = json!({"type": "string", "enum": ["stop", "length"]});
    let model = json!({
        "type": "object",
        "required": ["id", "object", "created", "owned_by"],
        "properties": {"id": {"type": "string"}, "object": {"type": "string", "enum": ["model"]}, "created": {"type": "integer"}},
    });
    let part = json!({"type": "object", "required": ["type", "text"],
        "properties": {"type": {"type": "string", "enum": ["text"]}, "text": {"type": "string"}}});
    let message = json!({
        "type": "object",
        "required": ["role", "content"],
        "properties": {
            "role": {"type": "string", "minLength": 1},
            "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": part}]},
        },
    });
    let mut paths = json!({
        "/": get("The page.", content("HTML.", "text/html", json!({"type": "string"})), &[]),
        "/health": get("Whether the server is there.", content("It is.", "application/json", json!({"type": "object"})), &[]),
        "/metrics": get("What the server counts.", content("For Prometheus.", "text/plain", json!({"type": "string"})), &[]),
        "/openapi.json": get("This document.", content("OpenAPI.", "application/json", json!({"type": "object"})), &[]),
        "/v1/models": get("The model that is served.", content("A list of one.", "application/json", json!({
            "type": "object", "required": ["object", "data"], "properties": {"data": {"type": "array", "items": reference("Model")}},
        })), &[]),
        "/v1/models/{id}": get("A model.", content("The model.", "application/json", reference("Model")), &[("404", "It is not served.")]),
        "/v1/embeddings": post("Vectors of texts.", "EmbeddingRequest", "Embeddings", false),
    });
    paths["/v1/models/{id}"]["get"]["parameters"] =
        json!([{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}]);
    if served.writes() {
        paths["/v1/completions"] = post("Texts that go on.", "CompletionRequest", "Completion", true);
    }
    if served.converses() {
        paths["/v1/chat/completions"] = post("Conversations.", "ChatRequest", "Chat", true);
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": format!("lathe serves {}", served.id), "version": env!("CARGO_PKG_VERSION")},
        "paths": paths,
        "components": {"schemas": {
            "Error": {"type": "object", "required": ["error"], "properties": {"error": {
                "type": "object",
                "required": ["message", "type", "param", "code"],
                "properties": {"message": {"type": "string"}, "type": {"type": "string"},
                    "param": {"type": ["string", "null"]}, "code": {"type": ["string", "null"]}},
            }}},
            "Model": model,
            "CompletionRequest": {"type": "object", "required": ["prompt"], "properties": with(manner(served), json!({
                "prompt": texts(served, 0),
                "max_tokens": or_null(json!({"type": "integer", "minimum": 0, "maximum": max_tokens})),
                "echo": or_null(json!({"type": "boolean"})),
                "logprobs": or_null(json!({"type": "integer", "minimum": 0, "maximum": LOGPROBS})),
            }))},
            "Completion": answer("text_completion", json!({"type": "object", "required": ["index", "text", "logprobs", "finish_reason"],
                "properties": {"index": {"type": "integer"}, "text": {"type": "string"}, "finish_reason": finish}})),
            "ChatRequest": {"type": "object", "required": ["messages"], "properties": with(manner(served), json!({
                "messages": {"type": "array", "minItems": 1, "maxItems": TURNS, "items": message},
                "max_tokens": most_tokens,
                "max_completion_tokens": most_tokens,
                "logprobs": or_null(json!({"type": "boolean"})),
                "top_logprobs": or_null(json!({"type": "integer", "minimum": 0, "maximum": LOGPROBS})),
            }))},
            "Chat": answer("chat.completion", json!({"type": "object", "required": ["index", "message", "finish_reason"],
                "properties": {"index": {"type": "integer"}, "message": {"type": "object", "required": ["role", "content"]}, "finish_reason": finish}})),
            "EmbeddingRequest": {"type": "object", "required": ["input"], "properties": {
                "model": or_null(json!({"type": "string", "enum": [served.id]})),
                "input": texts(served, 1),
                "encoding_format": or_null(json!({"type": "string", "enum": ["float", "base64"]})),
            }},
            "Embeddings": {"type": "object", "required": ["object", "data", "model", "usage"], "properties": {
                "data": {"type": "array", "items": {"type": "object", "required": ["object", "index", "embedding"]}},
                "usage": usage,
            }},
        }},
    })
}
