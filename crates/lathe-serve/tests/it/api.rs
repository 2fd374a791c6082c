//! What each endpoint answers.

use super::{Server, network};
use lathe_model::Input;
use lathe_serve::Settings;
use lathe_train::generate::{Generator, Sampling};
use serde_json::{Value, json};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";
const EMBEDDINGS: &str = "/v1/embeddings";
/// Decoders that keep their tokens in a cache, and one that carries a memory on.
const WRITERS: [&str; 3] = ["gpt2", "llama", "transformer_xl"];

fn llama() -> Server {
    Server::start("llama", 4096, Settings::default())
}

fn text(answer: &Value) -> &str {
    answer["choices"][0]["text"].as_str().unwrap()
}

#[test]
fn what_is_there_can_be_asked() {
    let server = llama();
    let client = server.client();
    assert_eq!(client.get("/health").json(), json!({"status": "ok"}));
    let models = client.get("/v1/models").json();
    assert_eq!((&models["data"][0]["id"], &models["data"][0]["max_model_len"]), (&json!("tiny"), &json!(4096)));
    assert_eq!(client.get("/v1/models/tiny").json(), models["data"][0]);
    assert_eq!(client.get("/v1/models/other").status, 404);
    let page = client.get("/");
    assert!(page.header("content-type").unwrap().starts_with("text/html") && page.text().contains("<!doctype html>"));
    assert!(!page.text().contains("http://") && !page.text().contains("https://"), "nothing comes from elsewhere");
    let openapi = client.get("/openapi.json").json();
    for path in ["/", "/health", "/metrics", "/v1/models", COMPLETIONS, CHAT, EMBEDDINGS] {
        assert!(openapi["paths"][path].is_object(), "{path}");
    }
    client.good(COMPLETIONS, json!({"prompt": "a", "max_tokens": 3}));
    client.wait_for("generated_tokens_total", 3.0); // counted once it is on its way
    let metrics = client.get("/metrics").text();
    assert!(metrics.contains("lathe_answers_total{endpoint=\"/v1/completions\",status=\"200\"} 1\n"), "{metrics}");
    assert!(metrics.contains("lathe_request_seconds_count 1\n"), "{metrics}");
}

#[test]
fn the_server_writes_what_the_model_writes() {
    for backbone in WRITERS {
        let server = Server::start(backbone, 512, Settings::default());
        let network = network(backbone, 512);
        let prompt: Vec<u32> = (0..100).map(|i| 32 + i * 7 % 90).collect();
        let sampling = Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, repetition_penalty: 1.0, seed: 0 };
        let mut generator = Generator::new(&network, &prompt, sampling);
        let expected: Vec<u8> = (0..24).map(|_| generator.next_token() as u8).collect();
        let body = json!({"prompt": prompt, "max_tokens": 24, "temperature": 0});
        let found = server.client().good(COMPLETIONS, body);
        assert_eq!(text(&found), String::from_utf8_lossy(&expected), "{backbone}");
        assert_eq!(found["choices"][0]["finish_reason"], "length");
        let usage = &found["usage"];
        assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(100), &json!(24)));
    }
}

#[test]
fn pieces_make_the_whole() {
    let server = llama();
    let client = server.client();
    let body = json!({"prompt": ["one", "two"], "n": 2, "max_tokens": 40, "seed": 3, "logprobs": 1, "echo": true,
        "stream_options": {"include_usage": true}});
    let whole = client.good(COMPLETIONS, body.clone());
    let pieces = client.stream(COMPLETIONS, body).rest();
    for (index, choice) in whole["choices"].as_array().unwrap().iter().enumerate() {
        let own = || {
            pieces
                .iter()
                .flat_map(|piece| piece["choices"].as_array().unwrap())
                .filter(|choice| choice["index"] == index)
        };
        let joined: String = own().map(|choice| choice["text"].as_str().unwrap()).collect();
        assert_eq!(joined, choice["text"].as_str().unwrap());
        assert_eq!(own().next_back().unwrap()["finish_reason"], choice["finish_reason"]);
        for part in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
            let lists = own().filter_map(|choice| choice["logprobs"][part].as_array());
            let joined: Vec<Value> = lists.flatten().cloned().collect();
            assert_eq!(joined.len(), choice["logprobs"][part].as_array().unwrap().len(), "{part}");
        }
    }
    assert_eq!(pieces.last().unwrap()["usage"]["completion_tokens"], 160);
}

#[test]
fn seeds_repeat_and_answers_differ() {
    let server = llama();
    let client = server.client();
    let ask = |seed: Value, n: usize| -> Vec<String> {
        let answer = client.good(COMPLETIONS, json!({"prompt": "x", "max_tokens": 20, "seed": seed, "n": n}));
        let choices = answer["choices"].as_array().unwrap();
        choices.iter().map(|choice| choice["text"].as_str().unwrap().to_string()).collect()
    };
    let three = ask(json!(5), 3);
    assert_eq!(three, ask(json!(5), 3));
    assert!(three[0] != three[1] && three[1] != three[2]);
    assert_eq!(ask(json!(6), 1)[0], three[1], "answers have seeds one after the other");
    assert_ne!(ask(Value::Null, 1), ask(Value::Null, 1));
}

#[test]
fn stop_texts_end_an_answer_and_are_no_part_of_it() {
    let server = llama();
    let client = server.client();
    let plain = json!({"prompt": "x", "max_tokens": 60, "seed": 1});
    let whole = text(&client.good(COMPLETIONS, plain.clone())).to_string();
    let chars: Vec<char> = whole.chars().collect();
    // Three characters of the middle, which the model writes one by one.
    let stop: String = chars[20..23].iter().collect();
    let at = whole.find(&stop).unwrap();
    let mut body = plain;
    body["stop"] = json!(["never written", stop]);
    let answer = client.good(COMPLETIONS, body.clone());
    assert_eq!((text(&answer), &answer["choices"][0]["finish_reason"]), (&whole[..at], &json!("stop")));
    let pieces = client.stream(COMPLETIONS, body).rest();
    let joined: String = pieces.iter().map(|piece| piece["choices"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(joined, whole[..at], "nothing of a stop text leaks into a stream");
}

#[test]
fn echo_scores_the_prompt() {
    for backbone in WRITERS {
        let server = Server::start(backbone, 512, Settings::default());
        let network = network(backbone, 512);
        let prompt = if backbone == "transformer_xl" {
            "a text of 28 bytes to score."
        } else {
            &"longer than one piece ".repeat(20)
        };
        let ids: Vec<u32> = prompt.bytes().map(u32::from).collect();
        let logits = network.logits(&Input::tokens(&ids, 1), &mut network.init_memory(1));
        let logprob = |position: usize, id: u32| {
            let row = &logits[(position - 1) * 256..][..256];
            let sum: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
            f64::from(row[id as usize]) - if network.log_probabilities() { 0.0 } else { sum.ln() }
        };
        for max_tokens in [0, 1] {
            let body =
                json!({"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "echo": true, "logprobs": 2});
            let answer = server.client().good(COMPLETIONS, body);
            let logprobs = &answer["choices"][0]["logprobs"];
            let scores = logprobs["token_logprobs"].as_array().unwrap();
            assert_eq!((scores.len(), &scores[0]), (ids.len() + max_tokens, &Value::Null));
            for (position, &id) in ids.iter().enumerate().skip(1) {
                let (found, expected) = (scores[position].as_f64().unwrap(), logprob(position, id));
                assert!((found - expected).abs() < 1e-3, "{backbone}, {position}: {found} is not {expected}");
                let top = logprobs["top_logprobs"][position].as_object().unwrap();
                let best = top.values().map(|value| value.as_f64().unwrap()).fold(f64::MIN, f64::max);
                assert!(best >= found && (1..=3).contains(&top.len()));
            }
            assert!(text(&answer).starts_with(prompt));
            assert_eq!(answer["usage"]["completion_tokens"], max_tokens);
        }
    }
}

#[test]
fn what_was_read_is_not_read_again() {
    let server = llama();
    let client = server.client();
    let long = "a prompt that comes again, ".repeat(20);
    let ask = |more: &str| {
        let body = json!({"prompt": format!("{long}{more}"), "max_tokens": 8, "temperature": 0});
        let answer = client.good(COMPLETIONS, body);
        (
            text(&answer).to_string(),
            answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap() as usize,
        )
    };
    let (first, none) = ask("and ends");
    assert_eq!(none, 0);
    let (second, known) = ask("and ends");
    assert_eq!((second, known), (first.clone(), long.len() + 7), "all but the last token");
    let (_, known) = ask("but ends differently");
    assert_eq!(known, long.len());
    // Answers to one prompt share it, too.
    let fresh = "another prompt that is long enough ".repeat(10);
    let answer = client.good(COMPLETIONS, json!({"prompt": fresh, "n": 4, "max_tokens": 2}));
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 3 * (fresh.len() - 1));
}

#[test]
fn conversations_follow_the_template() {
    let server = llama();
    let client = server.client();
    let parts = json!([{"type": "text", "text": "who "}, {"type": "text", "text": "is there? "}]);
    let messages = json!([{"role": "system", "content": " be brief"}, {"role": "user", "content": parts}]);
    let written = "<system>be brief\n<user>who is there?\n<assistant>";
    let body = json!({"messages": messages, "max_completion_tokens": 12, "temperature": 0, "logprobs": true, "top_logprobs": 2});
    let answer = client.good(CHAT, body.clone());
    let message = &answer["choices"][0]["message"];
    let plain = client.good(COMPLETIONS, json!({"prompt": written, "max_tokens": 12, "temperature": 0}));
    assert_eq!((message["content"].as_str().unwrap(), &message["role"]), (text(&plain), &json!("assistant")));
    assert_eq!(answer["usage"]["prompt_tokens"], written.len());
    let content = answer["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!((content.len(), content[0]["top_logprobs"].as_array().unwrap().len()), (12, 2));
    assert_eq!(content[0]["logprob"], content[0]["top_logprobs"][0]["logprob"], "greedy is the likeliest");
    let pieces = client.stream(CHAT, body).rest();
    assert_eq!(pieces[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    let joined: String = pieces.iter().filter_map(|piece| piece["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(joined, text(&plain));
    assert_eq!(pieces.last().unwrap()["choices"][0]["finish_reason"], "length");
}

#[test]
fn texts_become_vectors() {
    let server = Server::start("bert", 64, Settings::default());
    let client = server.client();
    let answer = client.good(EMBEDDINGS, json!({"input": ["a text", "another"], "encoding_format": "float"}));
    let vector = |i: usize| -> Vec<f64> {
        answer["data"][i]["embedding"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
    };
    assert_eq!((vector(0).len(), answer["usage"]["total_tokens"].as_u64()), (16, Some(13)));
    assert!((vector(1).iter().map(|x| x * x).sum::<f64>() - 1.0).abs() < 1e-5);
    assert_ne!(vector(0), vector(1));
    let alone = client.good(EMBEDDINGS, json!({"input": "another"}));
    assert_eq!(alone["data"][0]["embedding"], answer["data"][1]["embedding"]);
    let base64 = client.good(EMBEDDINGS, json!({"input": "another", "encoding_format": "base64"}));
    assert_eq!(base64["data"][0]["embedding"].as_str().unwrap().len(), 88, "64 bytes");
    assert_eq!(client.post(EMBEDDINGS, &json!({"input": "x".repeat(65)})).status, 400);
    let refused = client.post(COMPLETIONS, &json!({"prompt": "x"}));
    assert!(refused.status == 400 && refused.text().contains("sees the whole text"), "{}", refused.text());
    // A decoder has vectors, too.
    assert_eq!(llama().client().good(EMBEDDINGS, json!({"input": [1, 2, 3]}))["usage"]["total_tokens"], 3);
}

#[test]
fn what_is_wrong_is_answered_in_the_form_of_the_api() {
    let server = Server::start("llama", 128, Settings { max_tokens: 64, ..Settings::default() });
    let client = server.client();
    let ten_mb = format!("{{\"prompt\": \"{}\"}}", "x".repeat(10 << 20));
    let long = format!("{{\"prompt\": \"{}\"}}", "x".repeat(129));
    let cases: &[(&str, &[u8], u16, &str)] = &[
        (COMPLETIONS, b"", 400, "no JSON"),
        (COMPLETIONS, b"{\"prompt\": \"\xff\xfe\"}", 400, "no JSON"),
        (COMPLETIONS, b"[]", 400, "a list of 0"),
        (COMPLETIONS, b"{}", 400, "prompt: found nothing"),
        (COMPLETIONS, b"{\"prompt\": 5}", 400, "prompt: found 5"),
        (COMPLETIONS, b"{\"prompt\": []}", 400, "a list of 0"),
        (COMPLETIONS, b"{\"prompt\": [1, 256]}", 400, "tokens below 256"),
        (COMPLETIONS, b"{\"prompt\": [\"a\", 1]}", 400, "prompt"),
        (COMPLETIONS, b"{\"prompt\": \"x\", \"max_tokens\": -1}", 400, "max_tokens: found -1"),
        (COMPLETIONS, b"{\"prompt\": \"x\", \"max_tokens\": 65}", 400, "at most 64"),
        (COMPLETIONS, b"{\"prompt\": \"x\", \"temperature\": \"hot\"}", 400, "temperature: found \"hot\""),
        (COMPLETIONS, b"{\"prompt\": \"x\", \"temperature\": 1e400}", 400, "no JSON"),
        (COMPLETIONS, b"{\"prompt\": \"x\", \"n\": 0}", 400, "n: found 0"),
        (COMPLETIONS, b"{\"prompt\": \"x\", \"stop\": [\"\"]}", 400, "stop"),
        (COMPLETIONS, b"{\"prompt\": \"x\", \"logit_bias\": {\"300\": 1}}", 400, "logit_bias"),
        (COMPLETIONS, b"{\"prompt\": \"x\", \"model\": \"other\"}", 404, "`tiny`"),
        (COMPLETIONS, long.as_bytes(), 400, "129 tokens"),
        (COMPLETIONS, ten_mb.as_bytes(), 413, "too large"),
        (CHAT, b"{\"messages\": []}", 400, "messages"),
        (CHAT, b"{\"messages\": [{\"role\": \"user\"}]}", 400, "messages"),
        (CHAT, b"{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"tools\": [{}]}", 400, "tools"),
        (EMBEDDINGS, b"{\"input\": {}}", 400, "input: found an object"),
        (EMBEDDINGS, b"{\"input\": \"x\", \"dimensions\": 3}", 400, "dimensions"),
        ("/v1/other", b"{}", 404, "there is no POST"),
        ("/../../etc/passwd", b"{}", 404, "there is no POST"),
        ("/v1/%2e%2e/%00", b"{}", 404, "there is no POST"),
        ("/health", b"{}", 405, "cannot be asked with POST"),
    ];
    for (path, body, status, message) in cases {
        let answer = client.ask("POST", path, body);
        let error = &answer.json()["error"];
        let told = error["message"].as_str().unwrap();
        assert!(answer.status == *status && told.contains(message), "{path}: {} {told}", answer.status);
        assert!(error["type"].is_string() && error.get("param").is_some() && error.get("code").is_some(), "{error}");
    }
    assert_eq!(client.get(COMPLETIONS).status, 405);
    assert_eq!(client.get("/health").status, 200);
}

#[test]
fn a_key_is_asked_for_where_there_is_one() {
    let server = Server::start("llama", 128, Settings { api_key: Some("secret".into()), ..Settings::default() });
    let mut client = server.client();
    for (header, status) in [
        ("", 401),
        ("authorization: Bearer wrong!\r\n", 401),
        ("authorization: Bearer secret\r\n", 200),
        ("authorization: Bearer secret2\r\n", 401),
        ("authorization: secret\r\n", 401),
    ] {
        client.headers = header.into();
        assert_eq!(client.get("/v1/models").status, status, "{header}");
        assert_eq!(client.post(COMPLETIONS, &json!({"prompt": "x"})).status, status, "{header}");
        assert_eq!(client.get("/metrics").status, status, "{header}");
        assert_eq!(client.get("/health").status, 200, "whoever watches needs no key");
    }
}
