//! What is seen of a job: its events as bars and lines on stderr.

use crate::output::{BOLD, grouped};
use crate::progress::Progress;
use anyhow::Result;
use lathe_job::measurer::ChildProcess;
use lathe_job::store::{Files, cache_folder};
use lathe_job::{Context, Event, Watch};
use lathe_model::REGISTRY;
use lathe_search::differentiable::run::Event as Searching;
use lathe_search::differentiable::search::Found;
use lathe_train::data::Data;
use lathe_train::evaluate::Evaluation;
use lathe_train::run::Event as Training;

/// Does a job with this program's blocks, its measuring processes and its cache, and shows what it tells.
pub fn job<T>(work: impl FnOnce(&Context<'_>, Watch<'_>) -> lathe_job::Result<T>) -> Result<T> {
    let measurer = ChildProcess::of_this_program()?;
    let tables = Files::new(cache_folder());
    let context = Context { registry: &REGISTRY, measurer: &measurer, tables: &tables };
    let mut screen = Screen::default();
    let outcome = work(&context, &mut |event| screen.show(event));
    screen.bar.finish();
    Ok(outcome?)
}

#[derive(Default)]
struct Screen {
    bar: Progress,
    /// The last losses of weights and of mixtures.
    losses: [f32; 2],
}

impl Screen {
    fn show(&mut self, event: Event<'_>) {
        match event {
            Event::Stage { number, of, what } => {
                self.bar.say(&format!("{BOLD}[{number}/{of}]{BOLD:#} {what}"));
            }
            Event::Part(what) => self.bar.say(&format!("      {what}")),
            Event::Steps { what, note, done, total } => self.bar.steps(what, note, done, total),
            Event::Bytes { what, done, total } => self.bar.bytes(what, done, total),
            Event::Note(note) => self.bar.note(note),
            Event::Done => self.bar.finish(),
            Event::Training(event) => self.training(event),
            Event::Searching(event) => self.searching(event),
            Event::Message(message) => self.bar.say(&message),
            Event::Warning(warning) => self.warn(&warning),
            Event::Busy(others) => self.warn(&format!(
                "other processes took {:.0} % of the cores during the measurement: distrust these figures, and measure again \
                 with --fresh on a quiet machine",
                100.0 * others
            )),
            Event::Wrote(path) => self.bar.say(&format!("wrote {}", path.display())),
        }
    }

    fn warn(&mut self, warning: &str) {
        self.bar.say(&format!("warning: {warning}"));
    }

    fn training(&mut self, event: Training<'_>) {
        match event {
            Training::Preparing(what, done, total) => self.bar.bytes(what, done, total),
            Training::Training(model, data, step) => {
                let count = |data: &Data| match data {
                    Data::Tokens(tokens) => (tokens.len(), "tokens"),
                    Data::Examples(examples) => (examples.examples.len() as u64, "examples"),
                };
                let (train, what) = count(&data.train);
                let (valid, _) = data.valid.as_ref().map_or((0, what), count);
                self.bar.say(&format!(
                    "{} {}, d_model {}; {} {what} to train on, {} to validate on, vocabulary {}",
                    model.frame.backbone.key(),
                    model.layers(),
                    model.frame.d_model,
                    grouped(train),
                    grouped(valid),
                    grouped(data.tokenizer.vocab()),
                ));
                if step > 0 {
                    self.bar.say(&format!("goes on after step {step}"));
                }
            }
            Training::Step(step) => {
                let text = format!("loss {:.4}  {:.0} tokens/s", step.loss, step.tokens_per_s);
                self.bar.steps("training", &text, step.step.into(), step.steps.into());
            }
            Training::Evaluating(done, total) => self.bar.note(&format!("evaluating, {} %", 100 * done / total.max(1))),
            Training::Evaluated(step, valid) => self.bar.say(&format!("step {step}: {}", short(valid))),
            Training::Warning(warning) => self.warn(&warning),
        }
    }

    fn searching(&mut self, event: Searching<'_>) {
        match event {
            Searching::Preparing(what, done, total) => self.bar.bytes(what, done, total),
            Searching::Step(done, total, found) => {
                match found {
                    Found::Weights { loss, .. } => self.losses[0] = *loss,
                    Found::Architecture { loss, .. } => self.losses[1] = *loss,
                }
                let text = format!("loss {:.4}, of mixtures {:.4}", self.losses[0], self.losses[1]);
                self.bar.steps("searching", &text, done.into(), total.into());
            }
            Searching::Round(round, argmax, expected) => self.bar.say(&format!(
                "round {}: {}, estimated at {:.3}; all options together at {expected:.3}",
                round + 1,
                argmax.layers,
                argmax.estimate
            )),
            Searching::Warning(warning) => self.warn(&warning),
        }
    }
}

/// An evaluation in one line.
pub fn short(valid: &Evaluation) -> String {
    format!("valid {}", metrics(valid))
}

/// The figures of an evaluation that it has.
pub fn metrics(of: &Evaluation) -> String {
    if of.examples.is_none() {
        let others: String = of.scores.iter().map(|(name, value)| format!(", {name} {value:.4}")).collect();
        return format!(
            "loss {:.4}, perplexity {:.2}, {:.4} bits/byte{others}",
            of.loss, of.perplexity, of.bits_per_byte
        );
    }
    let loss = Some(("loss", of.loss)).filter(|(_, loss)| !loss.is_nan());
    let accuracy = of.accuracy.map(|accuracy| ("accuracy", accuracy));
    let others = of.scores.iter().map(|(name, value)| (name.as_str(), *value));
    let all = loss.into_iter().chain(accuracy).chain(others);
    all.map(|(name, value)| format!("{name} {value:.4}")).collect::<Vec<_>>().join(", ")
}
