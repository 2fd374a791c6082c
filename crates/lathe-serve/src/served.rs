//! A model that is served: its network, ready to compute, its tokenizer and its template of conversations.

use crate::{Error, Result};
use lathe_core::{Fault, Registry};
use lathe_model::{Network, Precision, folder};
use lathe_ops::attention::KeptAs;
use lathe_text::Tokenizer;
use minijinja::{Environment, ErrorKind, UndefinedBehavior, Value, context};
use serde::Serialize;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Steps that a template may take, so that none runs for ever.
const FUEL: u64 = 1_000_000;
/// Where newer versions of transformers keep the template.
const TEMPLATE: &str = "chat_template.jinja";

/// A model that is served.
pub struct Served {
    /// What clients call it.
    pub id: String,
    /// Frozen.
    pub network: Network,
    /// Of its folder; bytes without one.
    pub tokenizer: Tokenizer,
    /// Seconds since 1970 when it was loaded.
    pub created: u64,
    template: Option<String>,
}

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Message {
    /// `system`, `user`, `assistant` or what else the template knows.
    pub role: String,
    /// What was said.
    pub content: String,
}

/// The parts of a prompt: its tokens, and how many of them, at its beginning, are no text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// At least one.
    pub ids: Vec<u32>,
    /// What the tokenizer puts before a text.
    pub begin: usize,
}

impl Served {
    /// A model folder or a GGUF file, with products in a precision and keys and values kept in a way.
    pub fn open(
        folder: &Path,
        id: String,
        registry: &Registry,
        (precision, cache): (Precision, KeptAs),
    ) -> Result<Self> {
        let mut network = folder::load(folder, registry)?;
        let tokenizer = Tokenizer::load(folder)?;
        network.set_precision(precision);
        network.set_cache(cache);
        network.freeze();
        let file = folder.join(TEMPLATE);
        let template = match std::fs::read_to_string(&file) {
            Ok(template) => Some(template),
            Err(_) => tokenizer.chat_template(),
        };
        Self::new(id, network, tokenizer, template)
    }

    /// A frozen network with its tokenizer.
    pub fn new(id: String, network: Network, tokenizer: Tokenizer, template: Option<String>) -> Result<Self> {
        let (found, frame) = (tokenizer.vocab(), &network.model.frame);
        if matches!(tokenizer, Tokenizer::Bytes) && frame.backbone.causal() && frame.vocab != 256 {
            let expected = format!("one, for the vocabulary of {} is not that of bytes", frame.vocab);
            return Err(Fault::data(&id, "no tokenizer.json", expected).into());
        }
        if found > frame.vocab {
            let expected = format!("at most {}, the model's vocabulary", frame.vocab);
            return Err(Fault::data(&id, format!("a tokenizer of {found} tokens"), expected).into());
        }
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let served = Self { id, network, tokenizer, created, template };
        if let Some(template) = &served.template
            && let Err(error) = environment().template_from_str(template)
        {
            return Err(Error::Template { place: served.id, found: error.to_string() });
        }
        Ok(served)
    }

    /// Whether it writes one token after another, rather than to look at whole texts.
    pub fn writes(&self) -> bool {
        self.network.model.frame.backbone.causal() && self.network.has_head()
    }

    /// Whether it knows what a conversation looks like.
    pub fn converses(&self) -> bool {
        self.template.is_some() && self.writes()
    }

    /// The most tokens of prompt and answer together; none for models that carry a memory on.
    pub fn window(&self) -> Option<usize> {
        let frame = &self.network.model.frame;
        (!frame.has_memory()).then_some(frame.max_len as usize)
    }

    /// V
    pub fn vocab(&self) -> u32 {
        self.network.model.frame.vocab
    }

    /// A text to continue, after what the tokenizer puts before one. No text is a new line, where nothing is put before.
    pub fn prompt(&self, text: &str) -> Result<Prompt> {
        let mut ids: Vec<u32> = self.tokenizer.begin()?.into_iter().collect();
        let begin = ids.len();
        ids.extend(self.tokenizer.encode(text)?);
        if ids.is_empty() {
            ids = self.tokenizer.encode("\n")?;
        }
        Ok(Prompt { ids, begin })
    }

    /// A text to embed, with all special tokens that the model expects around it.
    pub fn whole(&self, text: &str) -> Result<Vec<u32>> {
        let window = self.window();
        Ok(self.tokenizer.encode_with_specials(text, window.map(|window| window + 1))?.ids)
    }

    /// A conversation as the text that the model continues.
    pub fn conversation(&self, messages: &[Message]) -> Result<Prompt> {
        let wrong = |found: String| Error::Template { place: format!("chat template of {}", self.id), found };
        let Some(template) = &self.template else { return Err(wrong("none".into())) };
        let token = |id: Option<u32>| id.and_then(|id| self.tokenizer.token(id)).unwrap_or_default();
        let specials = self.tokenizer.specials();
        let values = context! {
            messages => messages,
            bos_token => token(specials.bos),
            eos_token => token(specials.eos),
            pad_token => token(specials.pad),
            unk_token => token(specials.unk),
            add_generation_prompt => true,
        };
        let text = environment().render_str(template, values).map_err(|error| wrong(error.to_string()))?;
        // The template itself writes what stands before a text.
        let ids = self.tokenizer.encode(&text)?;
        match ids.is_empty() {
            true => Err(wrong("no token in what it makes of these messages".into())),
            false => Ok(Prompt { ids, begin: 0 }),
        }
    }
}

/// Jinja as transformers sets it up.
fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_fuel(Some(FUEL));
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    let raise = |text: String| -> Result<Value, minijinja::Error> {
        Err(minijinja::Error::new(ErrorKind::InvalidOperation, text))
    };
    environment.add_function("raise_exception", raise);
    // The same day for everybody: what a request gives depends on the request alone.
    environment.add_function("strftime_now", |_: String| "26 Jul 2024".to_string());
    environment
}
