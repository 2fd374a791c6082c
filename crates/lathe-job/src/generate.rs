//! Text from a model folder.

use crate::evaluate::check_tokenizer;
use crate::{Error, Result, input};
use lathe_core::Registry;
use lathe_model::{Precision, folder};
use lathe_ops::attention::KeptAs;
use lathe_train::data::Tokenizer;
use lathe_train::generate::{Generator, Sampling};
use serde::Serialize;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

/// What to write, and how.
#[derive(Debug, Clone)]
pub struct Request {
    /// A model folder.
    pub folder: PathBuf,
    /// Text to continue; empty for a new line.
    pub prompt: String,
    /// Tokens to write.
    pub tokens: u32,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Precision of products.
    pub precision: Precision,
    /// What keys and values of the tokens before are kept as.
    pub cache: KeptAs,
}

/// What was written.
#[derive(Debug, Clone, Serialize)]
pub struct Generated {
    /// The text, without the prompt.
    pub text: String,
    /// Tokens of the prompt, the one that texts begin with among them.
    pub prompt_tokens: usize,
    /// How long it took to read the prompt and to write the first token.
    pub first_token_ms: f64,
    /// How fast the others came; the first, where there is no other.
    pub tokens_per_s: f64,
}

/// A model folder, loaded to continue a text.
pub struct Writer {
    network: lathe_model::Network,
    tokenizer: Tokenizer,
    prompt: Vec<u32>,
    /// Tokens of the prompt that are no text.
    begin: usize,
    tokens: u32,
    sampling: Sampling,
}

impl Writer {
    /// Checks a request and loads its model.
    pub fn open(request: &Request, registry: &Registry) -> Result<Self> {
        check(&request.sampling)?;
        let folder = input::model_folder(&request.folder)?;
        let mut network = folder::load(&folder, registry)?;
        let tokenizer = Tokenizer::load(&folder)?;
        check_tokenizer(&tokenizer, &network.model, &folder)?;
        network.set_precision(request.precision);
        network.set_cache(request.cache);
        network.freeze();
        if !network.model.frame.backbone.causal() {
            let found = format!("a {}, which sees the whole text", network.model.frame.backbone.key());
            return Err(Error::data(folder.display(), found, "a model that writes one token after another"));
        }
        let (prompt, begin) = prompt(&tokenizer, &request.prompt)?;
        if prompt.is_empty() {
            return Err(Error::setting("prompt", "no token in it", "a text that the tokenizer knows"));
        }
        Ok(Self { network, tokenizer, prompt, begin, tokens: request.tokens, sampling: request.sampling })
    }

    /// Writes; `piece` gets the text as it comes, and may end it.
    pub fn write(&self, piece: &mut dyn FnMut(&str) -> ControlFlow<()>) -> Generated {
        let mut generator = Generator::new(&self.network, &self.prompt, self.sampling);
        let mut decoder = self.tokenizer.decoder();
        self.prompt[self.begin..].iter().for_each(|&id| drop(decoder.push(id))); // what comes may depend on what was
        let mut text = String::new();
        let start = Instant::now();
        let (mut first, mut seconds, mut written) = (0.0, 0.0, 0);
        let mut ended = false;
        while written < self.tokens && !ended {
            let found = decoder.push(generator.next_token());
            written += 1;
            seconds = start.elapsed().as_secs_f64();
            if written == 1 {
                first = seconds;
            }
            if let Some(found) = found {
                text.push_str(&found);
                ended = piece(&found).is_break();
            }
        }
        if !ended {
            let rest = decoder.finish().unwrap_or_default();
            text.push_str(&rest);
            let _ = piece(&rest); // there is nothing left to end
        }
        let tokens_per_s = match written {
            0 => 0.0,
            1 => 1.0 / first,
            _ => f64::from(written - 1) / (seconds - first),
        };
        Generated { text, prompt_tokens: self.prompt.len(), first_token_ms: 1e3 * first, tokens_per_s }
    }
}

/// The tokens to continue: the text's, after the token that texts begin with where the tokenizer puts one there. Without a
/// text it is that token, or a new line. And how many of them are no text.
fn prompt(tokenizer: &Tokenizer, text: &str) -> Result<(Vec<u32>, usize)> {
    let begin: Vec<u32> = tokenizer.begin()?.into_iter().collect();
    let count = begin.len();
    let text = match text {
        "" if count > 0 => Vec::new(),
        "" => tokenizer.encode("\n")?,
        text => tokenizer.encode(text)?,
    };
    Ok(([begin, text].concat(), count))
}

fn check(sampling: &Sampling) -> Result<()> {
    let within = |setting: &str, value: f64, expected: &str, good: bool| match good {
        true => Ok(()),
        false => Err(Error::setting(setting, value, expected)),
    };
    let Sampling { temperature: t, top_p: p, repetition_penalty: r, .. } = *sampling;
    within("temperature", t, "a finite number of at least 0", t.is_finite() && t >= 0.0)?;
    within("top_p", p, "a number above 0 and at most 1", p > 0.0 && p <= 1.0)?;
    within("repetition_penalty", r, "a finite number above 0", r.is_finite() && r > 0.0)
}
