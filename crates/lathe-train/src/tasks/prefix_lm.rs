//! Prefix language modelling, for encoder-decoders (Raffel et al., 2020, section 3.2): of every window the encoder reads
//! the first part, and the decoder tells the rest, every token from those before it. The decoder begins with the last
//! token of the first part. Losses are -log p of the next token.

use super::{Batches, Cut, Task};
use crate::data::{Batch, Data, Sampler};
use crate::evaluate::{Evaluation, Options, Window};
use crate::{Error, Result};
use lathe_core::Frame;
use lathe_model::{Network, Targets};

/// The rest of a text, from its first part.
pub struct PrefixLm;

/// Tokens of an evaluation that are computed at once.
const AT_ONCE: usize = 4096;

/// S
fn source_len(frame: &Frame) -> Result<usize> {
    match (frame.source_len(), frame.has_head()) {
        (Some(len), true) => Ok(len as usize),
        (None, _) => {
            let found = format!("`{}`, which has no encoder beside a decoder", frame.backbone.key());
            Err(Error::setting("backbone", found, "an encoder-decoder, for prefix_lm"))
        }
        (_, false) => {
            let found = format!("`{}` without an output layer", frame.backbone.key());
            Err(Error::setting("backbone", found, "one with an output layer, for prefix_lm"))
        }
    }
}

/// Windows [B, S + T - 1] and the tokens after theirs, cut in two.
fn cut(windows: &Batch, rows: usize, source: usize) -> Batch {
    let mut batch = Batch { fresh: true, rows, ..Batch::default() };
    let len = windows.ids.len() / rows;
    for (ids, next) in windows.ids.chunks_exact(len).zip(windows.targets.chunks_exact(len)) {
        batch.source.extend_from_slice(&ids[..source]);
        batch.ids.extend_from_slice(&ids[source - 1..]);
        batch.targets.extend_from_slice(&next[source - 1..]);
    }
    batch
}

impl Task for PrefixLm {
    fn key(&self) -> &'static str {
        "prefix_lm"
    }

    fn about(&self) -> &'static str {
        "the rest of a text, from its first part"
    }

    fn check(&self, frame: &Frame) -> Result<()> {
        source_len(frame).map(|_| ())
    }

    fn batches(&self, frame: &Frame, data: &Data, cut: &Cut<'_>) -> Result<Box<dyn Batches>> {
        let source = source_len(frame)?;
        let windows = Sampler::windows(data.tokens()?.clone(), cut.batch, source + cut.len - 1, cut.seed)?;
        Ok(Box::new(Halves { windows, rows: cut.batch, source }))
    }

    /// Windows whose first parts overlap, so that every token but those of the very first part is told once.
    fn evaluate(
        &self,
        network: &Network,
        data: &Data,
        options: &Options<'_>,
        watch: &mut dyn FnMut(u64, u64),
    ) -> Result<Evaluation> {
        let frame = &network.model.frame;
        let (source, tokens) = (source_len(frame)?, data.tokens()?);
        let window = options.window_of(frame);
        let all = tokens.len().saturating_sub(source as u64);
        let total = if options.limit == 0 { all } else { all.min(options.limit) };
        if total == 0 {
            let expected = format!("more than {source}, which the encoder reads");
            return Err(Error::data(tokens.path().display(), format_args!("{} tokens", tokens.len()), expected));
        }
        let (mut done, mut nats) = (0, 0.0);
        while done < total {
            watch(done, total);
            let rest = (total - done) as usize;
            let len = window.min(rest);
            let rows = (AT_ONCE / (source + len)).clamp(1, rest / len);
            let mut text = vec![0; source + rows * len];
            tokens.read(done, &mut text)?;
            let mut windows = Batch { rows, ..Batch::default() };
            for first in (0..rows).map(|row| row * len) {
                windows.ids.extend_from_slice(&text[first..first + source + len - 1]);
                windows.targets.extend_from_slice(&text[first + 1..first + source + len]);
            }
            let batch = cut(&windows, rows, source);
            let hidden = network.hidden(&batch.input(rows), &mut network.init_memory(rows));
            let losses = network.loss_of(&hidden, &Targets(&batch.targets));
            if let Some(onlooker) = options.onlooker {
                let (ids, source, targets) = (&batch.ids, &batch.source, &batch.targets);
                onlooker.window(&Window { ids, source, batch: rows, targets, hidden: &hidden, begins: true })?;
            }
            nats += losses.iter().copied().map(f64::from).sum::<f64>();
            done += (rows * len) as u64;
        }
        watch(total, total);
        let loss = nats / total as f64;
        let bytes_per_token = tokens.bytes() as f64 / tokens.len().max(1) as f64;
        Ok(Evaluation {
            loss,
            perplexity: loss.exp(),
            bits_per_byte: loss / std::f64::consts::LN_2 / bytes_per_token,
            tokens: total,
            ..Evaluation::NONE
        })
    }
}

/// Windows that are cut in two.
struct Halves {
    windows: Sampler,
    rows: usize,
    source: usize,
}

impl Batches for Halves {
    fn batch(&self, step: u64) -> Result<Batch> {
        Ok(cut(&self.windows.batch(step)?, self.rows, self.source))
    }

    fn steps_per_epoch(&self) -> u64 {
        self.windows.steps_per_epoch()
    }
}
