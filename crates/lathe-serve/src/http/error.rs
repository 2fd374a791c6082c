//! What is wrong with a request, in OpenAI's form: `{"error": {"message", "type", "param", "code"}}`.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// What is wrong with a request.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    message: String,
    kind: &'static str,
    param: Option<String>,
    code: Option<&'static str>,
}

const INVALID: &str = "invalid_request_error";

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), kind, param: None, code: None }
    }

    /// A request that means nothing.
    pub fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, INVALID, message)
    }

    /// A field of the body: what was found and what would be accepted.
    pub fn field(name: &str, found: impl std::fmt::Display, expected: impl std::fmt::Display) -> Self {
        let message = format!("{name}: found {found}; expected {expected}");
        Self { param: Some(name.into()), ..Self::bad(message) }
    }

    pub(super) fn too_many_tokens(name: &str, found: usize, most: usize) -> Self {
        let error = Self::field(name, format!("{found} tokens"), format!("at most {most}, the model's context"));
        Self { code: Some("context_length_exceeded"), ..error }
    }

    pub(super) fn no_key() -> Self {
        let message = "the key is missing or wrong; expected the header Authorization: Bearer KEY";
        Self { code: Some("invalid_api_key"), ..Self::new(StatusCode::UNAUTHORIZED, INVALID, message) }
    }

    pub(super) fn too_large(limit: usize) -> Self {
        let message = format!("the body is too large; expected at most {limit} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, INVALID, message)
    }

    pub(super) fn slow_body() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, INVALID, "the body did not come in time")
    }

    pub(super) fn timeout(seconds: u64) -> Self {
        let message = format!("the request took longer than {seconds} s");
        Self { code: Some("timeout"), ..Self::new(StatusCode::GATEWAY_TIMEOUT, "server_error", message) }
    }

    pub(super) fn busy(queue: usize) -> Self {
        let message = format!("{queue} requests are waiting already; try again in a second");
        let error = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message);
        Self { code: Some("rate_limit_exceeded"), ..error }
    }

    pub(super) fn ending() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", "the server is about to end")
    }

    pub(super) fn failed(why: &str) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", why)
    }

    pub(super) fn unknown_model(id: &str, served: &str) -> Self {
        let message = format!("model: found `{}`; expected `{served}`, the model that is served", shorten(id));
        let error = Self::new(StatusCode::NOT_FOUND, INVALID, message);
        Self { param: Some("model".into()), code: Some("model_not_found"), ..error }
    }

    pub(super) fn unknown_path(method: &Method, uri: &Uri) -> Self {
        let message = format!("there is no {method} {}; /openapi.json says what there is", shorten(uri.path()));
        Self { code: Some("unknown_url"), ..Self::new(StatusCode::NOT_FOUND, INVALID, message) }
    }

    pub(super) fn wrong_method(method: &Method, uri: &Uri) -> Self {
        let message = format!("{} cannot be asked with {method}; /openapi.json says how it can", shorten(uri.path()));
        Self { code: Some("unknown_url"), ..Self::new(StatusCode::METHOD_NOT_ALLOWED, INVALID, message) }
    }

    /// The body of the answer.
    pub fn json(&self) -> Value {
        let Self { message, kind, param, code, .. } = self;
        json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
    }
}

/// At most some words of what came from outside.
pub(super) fn shorten(text: &str) -> String {
    lathe_core::shorten(text).to_string()
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, [(CONTENT_TYPE, "application/json")], self.json().to_string()).into_response();
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// What a template, a tokenizer or a text says is wrong.
impl From<crate::Error> for ApiError {
    fn from(error: crate::Error) -> Self {
        Self::bad(error.to_string())
    }
}
