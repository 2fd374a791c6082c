//! `/v1/embeddings`: a vector of length 1 for each text, the mean of its last hidden states.

use super::error::ApiError;
use super::orders::{Text, texts};
use super::{App, answer};
use crate::engine::{Event, Work};
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Value, json};

pub(super) async fn handle(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    let fields = app.fields(request).await?;
    fields.model(&app.served().id)?;
    let width = u64::from(app.served().network.model.frame.d_model);
    fields.count("dimensions", width..=width)?;
    let base64 = match fields.text("encoding_format")? {
        None | Some("float") => false,
        Some("base64") => true,
        Some(other) => {
            return Err(ApiError::field(
                "encoding_format",
                format!("`{}`", super::error::shorten(other)),
                "float or base64",
            ));
        }
    };
    let found = texts(&fields, "input", app.served().vocab())?;
    let served = app.served().clone();
    let tokens = tokio::task::spawn_blocking(move || {
        let tokens = |text: Text| match text {
            Text::Words(words) => served.whole(&words),
            Text::Tokens(ids) => Ok(ids),
        };
        found.into_iter().map(tokens).collect::<crate::Result<Vec<_>>>()
    });
    let tokens = tokens.await.map_err(|_| ApiError::failed("the tokenizer failed"))??;
    for ids in &tokens {
        match app.served().window() {
            _ if ids.is_empty() => return Err(ApiError::field("input", "a text without a token", "some text")),
            Some(window) if ids.len() > window => {
                return Err(ApiError::too_many_tokens("input", ids.len(), window));
            }
            _ => {}
        }
    }
    let (texts, count) = (tokens.len(), tokens.iter().map(Vec::len).sum::<usize>());
    let mut answers = app.submit(Work::Embed(tokens))?;
    let timeout = app.0.settings.timeout;
    let all = async {
        let mut vectors: Vec<Vec<f32>> = vec![Vec::new(); texts];
        let mut left = texts;
        while left > 0 {
            match answers.receiver.recv().await {
                Some((index, Event::Embedded(vector))) => {
                    vectors[index] = vector;
                    left -= 1;
                }
                Some(_) => {}
                None => return Err(ApiError::failed("the computation failed")),
            }
        }
        Ok(vectors)
    };
    let vectors = tokio::time::timeout(timeout, all).await.map_err(|_| ApiError::timeout(timeout.as_secs()))??;
    let value = |vector: Vec<f32>| match base64 {
        true => Value::String(encode(&vector.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())),
        false => json!(vector),
    };
    let data = vectors.into_iter().enumerate();
    let data = data.map(|(index, vector)| json!({"object": "embedding", "index": index, "embedding": value(vector)}));
    Ok(answer(&json!({
        "object": "list",
        "model": app.served().id,
        "data": data.collect::<Vec<_>>(),
        "usage": {"prompt_tokens": count, "total_tokens": count},
    })))
}

/// Base64 (RFC 4648).
fn encode(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place)) as usize & 63];
            out.push(if place <= group.len() { letter as char } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn base64_is_that_of_the_standard() {
        let cases =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("\u{ff}~", "w79+")];
        for (text, expected) in cases {
            assert_eq!(super::encode(text.as_bytes()), expected);
        }
    }
}
