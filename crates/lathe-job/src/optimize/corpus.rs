//! What a model is for: a text, or examples of a task. Either is cut in three parts; here is what the stages of a job need of
//! both.

use super::job::Job;
use super::labelled::{self, Labelled};
use super::outcome::Quality;
use super::samples::Samples;
use super::text::Text;
use crate::compare::models::{Request as Comparing, Side as Compared};
use crate::compare::quality;
use crate::{Result, Watch, evaluate, pages};
use lathe_core::Frame;
use lathe_model::folder;
use lathe_train::data::{Tokenizer, Tokens};
use lathe_train::evaluate::Evaluation;
use lathe_train::settings::Settings;
use std::path::Path;

/// Sequences, and tokens of each, that weights are rounded by.
const CALIBRATING: usize = 64;
const CALIBRATION_LEN: usize = 256;
/// Examples whose predictions are shown.
const SHOWN: usize = 12;

/// What a model is for.
pub(super) enum Corpus {
    /// A text, and the tokens of the part to learn.
    Text(Text, Tokens),
    /// Examples.
    Examples(Labelled),
}

impl Corpus {
    /// What models are judged by while they are chosen: about so many tokens.
    pub fn samples(&self, tokenizer: &Tokenizer, frame: &Frame, limit: u64) -> Result<Samples> {
        match self {
            Self::Text(text, _) => text.samples(text.parts.choose, tokenizer, frame, limit),
            Self::Examples(labelled) => labelled.samples(tokenizer, frame, limit),
        }
    }

    /// The same whatever the tokens are: so many of the tokenizer that models are made with.
    pub fn judging(&self, tokenizer: &Tokenizer, frame: &Frame, limit: u64) -> Result<Samples> {
        match self {
            Self::Text(text, tokens) => {
                let bytes_per_token = tokens.bytes() as f64 / tokens.len().max(1) as f64;
                let part = text.beginning(text.parts.choose, (limit as f64 * bytes_per_token) as u64)?;
                text.samples(part, tokenizer, frame, 0)
            }
            Self::Examples(labelled) => labelled.samples(tokenizer, frame, limit),
        }
    }

    /// What trainings in a job's folder read.
    pub fn learn(&self, out: &Path, settings: Settings) -> Settings {
        match self {
            Self::Text(..) => Settings { data: out.join("tokens").display().to_string(), ..settings },
            Self::Examples(labelled) => {
                let [data, valid] = [labelled::LEARN, labelled::NONE].map(|name| out.join(name).display().to_string());
                Settings { task: labelled.name.clone(), data, valid, ..settings }
            }
        }
    }

    /// Sequences to learn from, from all over them.
    pub fn sequences(&self, tokenizer: &Tokenizer, frame: &Frame) -> Result<Vec<Vec<u32>>> {
        let tokens = match self {
            Self::Text(_, tokens) => tokens,
            Self::Examples(labelled) => return labelled.sequences(tokenizer, frame, CALIBRATING),
        };
        let len = (frame.window() as usize).min(CALIBRATION_LEN).min(tokens.len() as usize);
        let count = CALIBRATING.min(tokens.len() as usize / len.max(1)).max(1);
        let every = tokens.len() / count as u64;
        let sequence = |i: usize| -> Result<Vec<u32>> {
            let mut ids = vec![0; len];
            tokens.read((i as u64 * every).min(tokens.len() - len as u64), &mut ids)?;
            Ok(ids)
        };
        (0..count).map(sequence).collect()
    }
}

impl Job<'_> {
    /// What to report on, in the job's folder.
    pub(crate) fn report_name(&self) -> &'static str {
        match &self.corpus {
            Corpus::Text(..) => "report.txt",
            Corpus::Examples(_) => labelled::REPORT,
        }
    }

    /// The file to report on.
    pub(super) fn report_file(&self) -> String {
        self.path(self.report_name()).display().to_string()
    }

    /// Two folders judged on a text or on examples, each by its own tokens, and how far their predictions are from each other.
    pub(super) fn judge_both(
        &self,
        folders: [&Path; 2],
        data: &str,
        watch: Watch<'_>,
    ) -> Result<([Evaluation; 2], Option<Quality>)> {
        if let Corpus::Examples(labelled) = &self.corpus {
            let evaluations =
                [self.judge_one(folders[0], data, &mut *watch)?, self.judge_one(folders[1], data, watch)?];
            if data != self.report_file() {
                return Ok((evaluations, None));
            }
            let load = |folder: &Path| folder::load(folder, self.context.registry);
            let quality = labelled.quality([&load(folders[0])?, &load(folders[1])?], &self.tokenizer)?;
            return Ok((evaluations, quality));
        }
        let sides = folders.map(|folder| Compared::open(&folder.display().to_string(), self.context));
        let [a, b] = sides;
        let request = Comparing { documents: self.has_documents(data), ..Comparing::default() };
        let found = quality::judge(&[a?, b?], &request, data, self.context.registry, watch)?;
        let quality = found.divergence.as_ref().map(|found| Quality { kl: found.kl, same_top: found.same_top });
        Ok((found.evaluations, quality))
    }

    /// The mean cosine of the vectors that two folders give for the texts to report on, where they are for vectors.
    pub(super) fn cosine(&self, folders: [&Path; 2]) -> Result<Option<f64>> {
        let Corpus::Examples(labelled) = &self.corpus else { return Ok(None) };
        let [a, b] = folders.map(|folder| folder::load(folder, self.context.registry));
        labelled.cosine([&a?, &b?], &self.tokenizer)
    }

    /// A folder judged on a text or on examples.
    pub(super) fn judge_one(&self, folder: &Path, data: &str, watch: Watch<'_>) -> Result<Evaluation> {
        let (folder, data) = (folder.to_path_buf(), data.to_string());
        let request = match &self.corpus {
            Corpus::Text(..) => {
                let documents = self.has_documents(&data);
                let window = (!self.base.frame.has_memory()).then(|| self.base.frame.max_len.min(quality::WINDOW));
                evaluate::Request { folder, data, documents, window, ..evaluate::Request::default() }
            }
            Corpus::Examples(labelled) => {
                let (task, columns) = (labelled.name.clone(), self.plan.asked.columns.clone());
                evaluate::Request { folder, data, task, columns, ..evaluate::Request::default() }
            }
        };
        Ok(evaluate::run(self.context.registry, &request, watch)?.evaluation)
    }

    /// Whether a text is judged document by document: the job's own is where it has documents.
    fn has_documents(&self, data: &str) -> bool {
        data == self.report_file() && self.plan.parts.documents && !self.base.frame.has_memory()
    }

    /// What models write, or say of examples.
    pub(super) fn said(&self, folders: &[&Path]) -> Result<Vec<String>> {
        let said = |folder: &&Path| match &self.corpus {
            Corpus::Text(..) => pages::sample(folder, self.context.registry),
            Corpus::Examples(labelled) => {
                labelled.said(&folder::load(folder, self.context.registry)?, &self.tokenizer, SHOWN)
            }
        };
        folders.iter().map(said).collect()
    }
}
