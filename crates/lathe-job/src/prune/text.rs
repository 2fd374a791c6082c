//! The text of a pruning, in two parts: what decides what goes, and what losses are measured on.

use super::request::Asked;
use crate::{Error, Event, Result, Watch};
use lathe_core::model::MAX_LEN;
use lathe_core::{Frame, Registry};
use lathe_model::folder;
use lathe_train::data::{self, Batch, Documents, Source, Tokenizer, Tokens};
use lathe_train::evaluate::{Evaluation, Options, evaluate_documents};
use lathe_train::samples;
use lathe_train::tasks::Task;
use lathe_train::texts::language_of;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

/// A text and its parts.
pub(super) struct Text {
    source: Source,
    valid: Option<Source>,
    documents: bool,
    pub parts: Parts,
}

/// Bytes of the text that decide what goes, and of that on which losses are measured: no byte is in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    /// First byte and end in the data.
    pub calibration: [u64; 2],
    /// First byte and end in the text to validate on, or in the data where there is none.
    pub evaluation: [u64; 2],
}

impl Text {
    pub fn open(asked: &Asked) -> Result<Self> {
        let source = Source::open(&asked.data)?;
        let valid = asked.valid.as_deref().map(Source::open).transpose()?;
        let split = if valid.is_some() { source.bytes() } else { source.split()? };
        let (start, of) = valid.as_ref().map_or((split, &source), |valid| (0, valid));
        let end = match asked.eval_bytes {
            0 => of.bytes(),
            most => of.next_character(start.saturating_add(most))?,
        };
        let parts = Parts { calibration: [0, split], evaluation: [start, end] };
        if split == 0 || end <= start {
            let expected = "a text of at least two bytes, nine tenths to choose by and one to measure losses on";
            return Err(Error::data(&asked.data, format_args!("{} bytes of text", source.bytes()), expected));
        }
        Ok(Self { source, valid, documents: asked.documents, parts })
    }

    fn range([start, end]: [u64; 2]) -> Range<u64> {
        start..end
    }

    fn encode(&self, evaluation: bool, tokenizer: &Tokenizer, aside: &Path, watch: Watch<'_>) -> Result<Tokens> {
        let (source, part) = match evaluation {
            true => (self.valid.as_ref().unwrap_or(&self.source), self.parts.evaluation),
            false => (&self.source, self.parts.calibration),
        };
        let watch = RefCell::new(watch);
        let progress = |what: &str, done, total| watch.borrow_mut()(Event::Bytes { what, done, total });
        Ok(data::encode_range(source, Self::range(part), tokenizer, aside, &progress)?)
    }

    fn documents(&self, evaluation: bool) -> Result<Documents<'_>> {
        let (source, part) = match evaluation {
            true => (self.valid.as_ref().unwrap_or(&self.source), self.parts.evaluation),
            false => (&self.source, self.parts.calibration),
        };
        Ok(Documents::within(source, Self::range(part))?)
    }

    /// Sequences to look at the model with.
    pub fn samples(
        &self,
        frame: &Frame,
        task: Option<&dyn Task>,
        tokenizer: &Tokenizer,
        (count, seed): (u32, u32),
        watch: Watch<'_>,
    ) -> Result<Vec<Batch>> {
        if self.documents {
            check_documents(frame)?;
            let longest = samples::LONGEST.min(frame.window() as usize);
            return Ok(samples::documents(self.documents(false)?.tokens(tokenizer, longest)?, count as usize)?);
        }
        let aside = aside()?;
        let tokens = self.encode(false, tokenizer, &aside.path().join("tokens"), watch)?;
        Ok(samples::windows(frame, task, tokens, tokenizer, count as usize, seed.into())?)
    }

    /// Every token that the part to choose by has.
    pub fn used(&self, tokenizer: &Tokenizer, watch: Watch<'_>) -> Result<BTreeSet<u32>> {
        let mut used = BTreeSet::new();
        if self.documents {
            for (done, document) in self.documents(false)?.tokens(tokenizer, usize::MAX)?.enumerate() {
                used.extend(document?.ids);
                watch(Event::Steps { what: "reading", note: "documents", done: done as u64, total: 0 });
            }
            return Ok(used);
        }
        let aside = aside()?;
        let tokens = self.encode(false, tokenizer, &aside.path().join("tokens"), watch)?;
        let mut piece = vec![0; 1 << 16];
        for start in (0..tokens.len()).step_by(piece.len()) {
            let len = piece.len().min((tokens.len() - start) as usize);
            tokens.read(start, &mut piece[..len])?;
            used.extend(&piece[..len]);
        }
        Ok(used)
    }

    /// How well a folder predicts the part that is held apart.
    pub fn loss(
        &self,
        folder: &Path,
        task: &dyn Task,
        registry: &Registry,
        note: &str,
        watch: Watch<'_>,
    ) -> Result<Evaluation> {
        let tokenizer = Tokenizer::load(folder)?;
        let mut network = folder::load(folder, registry)?;
        network.freeze();
        let frame = &network.model.frame;
        if self.documents {
            check_documents(frame)?;
            let longest = if frame.has_memory() { MAX_LEN } else { frame.max_len };
            let mut documents = self.documents(true)?.tokens(&tokenizer, longest as usize)?;
            let mut heard = |done| watch(Event::Steps { what: "evaluating", note, done, total: 0 });
            let evaluation = evaluate_documents(&network, &mut documents, None, &mut heard)?;
            return self.scored(evaluation);
        }
        let aside = aside()?;
        let tokens = self.encode(true, &tokenizer, &aside.path().join("tokens"), &mut *watch)?;
        let name = &self.valid.as_ref().unwrap_or(&self.source).name;
        let language = language_of(name, &tokenizer);
        let options = Options { language: language.as_ref(), ..Options::new(&tokenizer) };
        let mut heard = |done, total| watch(Event::Steps { what: "evaluating", note, done, total });
        self.scored(task.evaluate(&network, &tokens.into(), &options, &mut heard)?)
    }

    fn scored(&self, evaluation: Evaluation) -> Result<Evaluation> {
        if evaluation.tokens == 0 {
            let name = &self.valid.as_ref().unwrap_or(&self.source).name;
            return Err(Error::data(name, "no token to score", "a longer text to measure losses on"));
        }
        Ok(evaluation)
    }
}

fn check_documents(frame: &Frame) -> Result<()> {
    if frame.backbone.causal() {
        return Ok(());
    }
    let found = format!("documents for a {}", frame.backbone.key());
    Err(Error::setting("documents", found, "a model that predicts the next token"))
}

fn aside() -> Result<tempfile::TempDir> {
    tempfile::tempdir().map_err(Error::io(Path::new("a folder for tokens")))
}
