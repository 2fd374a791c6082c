//! `lathe serve`: a model behind HTTP.

use super::Action;
use crate::output;
use anyhow::{Context, Result};
use clap::Parser;
use lathe_job::input;
use lathe_model::REGISTRY;
use lathe_ops::Precision;
use lathe_ops::attention::KeptAs;
use lathe_serve::{Served, Settings, serve};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Serve a model folder over HTTP, as clients of OpenAI's API expect it
#[derive(Parser)]
#[command(
    name = "serve",
    after_help = "\
/v1/completions, /v1/chat/completions, /v1/embeddings and /v1/models; /health, /metrics, /openapi.json and a page at /.
Requests are computed together, and what prompts have in common is computed once. Ends with Ctrl-C, after what runs.

Examples:
  lathe serve storyteller
  lathe serve SmolLM2-135M.gguf --port 9000 --cache int8
  LATHE_API_KEY=secret lathe serve mine --host 0.0.0.0"
)]
pub struct Serve {
    /// Model folder (config.json, model.safetensors, tokenizer.json; bytes without one), GGUF file or storyteller
    folder: PathBuf,
    /// Address to listen on; others than this machine reach it only if told so, 0.0.0.0 for all
    #[arg(long, default_value = "127.0.0.1", value_name = "IP")]
    host: IpAddr,
    /// Port to listen on; 0 for any that is free
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// What clients call the model [default: the name of the folder]
    #[arg(long)]
    name: Option<String>,
    /// What requests have to bring as `Authorization: Bearer KEY`; LATHE_API_KEY says it without others seeing it
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// Texts that are written together
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    rows: u32,
    /// Requests that may wait; more are turned away with 429
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    queue: u32,
    /// The largest body of a request
    #[arg(long, value_name = "MB", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    max_body_mb: u32,
    /// The most tokens of an answer [default: as many as fit the model]
    #[arg(long, value_name = "N")]
    max_tokens: Option<u32>,
    /// How long a request may take
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u32,
    /// How long requests that run may go on when the server ends
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    grace: u32,
    /// Memory for prompts that may come again; 0 keeps none
    #[arg(long, value_name = "MB", default_value_t = 512)]
    prefix_mb: u32,
    /// Seed of requests that bring none
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Precision of products: f32 or bf16
    #[arg(long, default_value_t = Precision::F32)]
    precision: Precision,
    /// What keys and values of the tokens before are kept as: f32, bf16 or int8
    #[arg(long, default_value_t, value_name = "KIND")]
    cache: KeptAs,
}

impl Action for Serve {
    fn run(self, json: bool) -> Result<()> {
        let folder = input::model_folder(&self.folder)?;
        let name = self.name.or_else(|| {
            self.folder
                .canonicalize()
                .ok()
                .as_ref()
                .unwrap_or(&self.folder)
                .file_stem()
                .map(|name| name.to_string_lossy().into_owned())
        });
        let name = name.unwrap_or_else(|| "model".into());
        if let Some(warning) = self.precision.warning() {
            output::tell(format_args!("{warning}"));
        }
        let served = Served::open(&folder, name, &REGISTRY, (self.precision, self.cache))?;
        let key = self.api_key.or_else(|| std::env::var("LATHE_API_KEY").ok()).filter(|key| !key.is_empty());
        let settings = Settings {
            address: SocketAddr::new(self.host, self.port),
            api_key: key,
            rows: self.rows as usize,
            queue: self.queue as usize,
            body_bytes: (self.max_body_mb as usize) << 20,
            max_tokens: self.max_tokens.map_or(1 << 20, |most| most as usize),
            timeout: Duration::from_secs(self.timeout.into()),
            grace: Duration::from_secs(self.grace.into()),
            prefix_bytes: (self.prefix_mb as usize) << 20,
            seed: self.seed,
        };
        let (id, open) = (served.id.clone(), settings.api_key.is_none() && !self.host.is_loopback());
        let ready = |address: SocketAddr| {
            if open {
                output::tell(format_args!("anybody who reaches {address} can ask: --api-key asks for a key"));
            }
            output::tell(format_args!("{id} at http://{address}; Ctrl-C ends it"));
            if json {
                let _ = output::json(&serde_json::json!({"url": format!("http://{address}"), "model": id}));
            }
        };
        serve(served, settings, ready, lathe_serve::told_to_stop()).context("serve")
    }
}
