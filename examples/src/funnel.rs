//! Fewer tokens in the middle of a stack (Dai et al., 2020, "Funnel-Transformer"; Nawrot et al., 2021, "Hourglass"):
//! two blocks that change the length. `pool{by=2}` averages groups of tokens and lays what it got aside; `unpool{by=2}`
//! takes that back and adds to each token the last group that was complete with it, so that no token sees one after it:
//!
//! - pool: z_j = mean of x_(by j) to x_(by j + by - 1)
//! - unpool: y_t = x_t + z_((t + 1) / by - 1), with z_(-1) = 0
//!
//! Neither has parameters. Decoding keeps the tokens of a group that is not complete, and the last group that was.

use candle_core::Tensor;
use lathe_core::{Block, BlockKind, Cost, Domain, Error, Frame, Knob, Result, Role, Setting, Shape};
use lathe_model::build::{BuildBlock, LayerBuilder, Site};
use lathe_model::layer::{Layer, LayerState, OwnState, Pass, Saved, Stream};
use lathe_model::linear::Matrix;
use lathe_model::params::{Builder, Grads};
use lathe_model::{Graph, GraphStream, Precision};
use lathe_ops::buffer::Buf;
use lathe_ops::linear;
use std::any::Any;
use std::sync::Arc;

/// Averages groups of tokens.
pub struct Pool;

/// Adds them to the tokens that there were.
pub struct Unpool;

/// What is laid aside.
const NAME: &str = "funnel";
const BY: usize = 0;
const KNOBS: &[Knob] = &[Knob { name: "by", mark: None, domain: Domain::Int { min: 2, max: 64 } }];

fn by(block: &Block) -> u32 {
    block.get(BY).unwrap_or(2)
}

fn resolve(block: &Block) -> Block {
    let mut block = *block;
    block.set(BY, by(&block));
    block
}

/// Groups of a segment would begin anywhere.
fn check(frame: &Frame) -> Result<()> {
    match frame.has_memory() {
        true => Err(Error::value("backbone", frame.backbone.key(), "one without a memory of earlier segments")),
        false => Ok(()),
    }
}

fn cost(frame: &Frame, tokens: u128, kept: u128) -> Cost {
    let row = 4 * u128::from(frame.d_model);
    Cost { activation_bytes: tokens * row, state_bytes: kept * row, ..Cost::default() }
}

impl BlockKind for Pool {
    fn key(&self) -> &'static str {
        "pool"
    }

    fn letter(&self) -> Option<char> {
        None
    }

    fn knobs(&self) -> &'static [Knob] {
        KNOBS
    }

    fn resolve(&self, block: &Block, _: &Frame) -> Block {
        resolve(block)
    }

    fn check(&self, _: &Block, frame: &Frame) -> Result<()> {
        check(frame)
    }

    fn cost(&self, block: &Block, frame: &Frame, setting: &Setting) -> Cost {
        let by = u64::from(by(block));
        cost(frame, u128::from(setting.batch) * u128::from(setting.tgt_len / by), u128::from(by) - 1)
    }

    fn role(&self) -> Role {
        Role::MixesTokens
    }

    fn variants(&self, _: &Frame) -> Vec<Block> {
        Vec::new() // it makes no sense without the other
    }

    fn reshape(&self, block: &Block, mut shape: Shape) -> Result<Shape> {
        shape.lay_aside(NAME);
        shape.len /= u64::from(by(block));
        Ok(shape)
    }

    fn builder(&self) -> &'static dyn Any {
        &LayerBuilder(&Self)
    }
}

impl BlockKind for Unpool {
    fn key(&self) -> &'static str {
        "unpool"
    }

    fn letter(&self) -> Option<char> {
        None
    }

    fn knobs(&self) -> &'static [Knob] {
        KNOBS
    }

    fn resolve(&self, block: &Block, _: &Frame) -> Block {
        resolve(block)
    }

    fn check(&self, _: &Block, frame: &Frame) -> Result<()> {
        check(frame)
    }

    fn cost(&self, block: &Block, frame: &Frame, setting: &Setting) -> Cost {
        cost(frame, setting.tokens() * u128::from(by(block)), 1)
    }

    fn role(&self) -> Role {
        Role::MixesTokens
    }

    fn variants(&self, _: &Frame) -> Vec<Block> {
        Vec::new()
    }

    fn reshape(&self, block: &Block, mut shape: Shape) -> Result<Shape> {
        let Some((width, len)) = shape.take(NAME) else {
            return Err(Error::value("unpool", "no pool below", "one pool for each unpool"));
        };
        if width != shape.width || len / u64::from(by(block)) != shape.len {
            let found = format!("{} tokens of width {}", shape.len, shape.width);
            let expected = format!("{} of width {width}, as `by` of its pool makes them", len / u64::from(by(block)));
            return Err(Error::value("unpool", found, expected));
        }
        shape.len = len;
        Ok(shape)
    }

    fn builder(&self) -> &'static dyn Any {
        &LayerBuilder(&Self)
    }
}

impl BuildBlock for Pool {
    fn build(&self, block: &Block, frame: &Frame, _: &Site<'_>, _: &mut Builder) -> Option<Box<dyn Layer>> {
        Some(Box::new(PoolLayer { by: by(block) as usize, d: frame.d_model as usize }))
    }
}

impl BuildBlock for Unpool {
    fn build(&self, block: &Block, frame: &Frame, _: &Site<'_>, _: &mut Builder) -> Option<Box<dyn Layer>> {
        Some(Box::new(UnpoolLayer { by: by(block) as usize, d: frame.d_model as usize }))
    }
}

/// Rows of each sequence that decoding keeps: tokens of a group that is not complete, or the last group.
#[derive(Debug, Clone)]
struct Rows(Vec<Vec<f32>>);

impl OwnState for Rows {
    fn boxed(&self) -> Box<dyn OwnState> {
        Box::new(self.clone())
    }
}

struct PoolLayer {
    by: usize,
    d: usize,
}

impl Layer for PoolLayer {
    fn forward(&self, pass: &Pass<'_>, x: &Stream, _: Option<&Arc<Buf>>, state: &mut LayerState) -> (Stream, Saved) {
        let (group, mut pending) = (self.by * self.d, state.own::<Rows>());
        let before = pending.as_ref().map_or(0, |rows| rows.0[0].len() / self.d);
        let len = (before + x.len) / self.by;
        let mut z = Buf::zeros(pass.batch * len * self.d);
        for b in 0..pass.batch {
            let mut rows = pending.as_mut().map_or_else(Vec::new, |rows| std::mem::take(&mut rows.0[b]));
            rows.extend_from_slice(&x.hidden[b * x.len * self.d..][..x.len * self.d]);
            for (z, group) in z[b * len * self.d..].chunks_exact_mut(self.d).zip(rows.chunks_exact(group)) {
                for row in group.chunks_exact(self.d) {
                    z.iter_mut().zip(row).for_each(|(z, x)| *z += x / self.by as f32);
                }
            }
            if let Some(pending) = &mut pending {
                pending.0[b] = rows[len * group..].to_vec();
            }
        }
        // A group is real where all of its tokens are.
        let real = |mask: &Arc<Vec<bool>>| {
            let groups = mask.chunks_exact(x.len).flat_map(|row| row.chunks_exact(self.by));
            Arc::new(groups.map(|group| group.iter().all(|real| *real)).collect())
        };
        let mut aside = x.aside.clone();
        aside.push((NAME, Stream { aside: Vec::new(), ..x.clone() }));
        let position = (x.position - before.min(x.position)) / self.by;
        let y = Stream { hidden: Arc::new(z), len, position, mask: x.mask.as_ref().map(real), aside, stack: x.stack };
        (y, Box::new(()))
    }

    fn backward(&self, pass: &Pass<'_>, _: Saved, dy: Buf, _: &mut Grads) -> Buf {
        let (all, groups) = (pass.len * self.d, pass.len / self.by * self.d);
        let mut dx = pass.aside_grads.take(NAME).unwrap_or_else(|| Buf::zeros(pass.batch * all));
        for b in 0..pass.batch {
            let dx = dx[b * all..][..all].chunks_exact_mut(self.by * self.d);
            for (dx, dz) in dx.zip(dy[b * groups..][..groups].chunks_exact(self.d)) {
                let row = |dx: &mut [f32]| dx.iter_mut().zip(dz).for_each(|(dx, dz)| *dx += dz / self.by as f32);
                dx.chunks_exact_mut(self.d).for_each(row);
            }
        }
        dx
    }

    fn composed(&self, graph: &Graph<'_>, x: &GraphStream, _: &mut Option<Tensor>) -> candle_core::Result<GraphStream> {
        let len = graph.len / self.by;
        let rows = x.hidden.reshape((graph.batch, graph.len, self.d))?.narrow(1, 0, len * self.by)?;
        let z = rows.contiguous()?.reshape((graph.batch * len, self.by, self.d))?.mean(1)?;
        let real = |mask: &Vec<bool>| {
            let groups = mask.chunks_exact(graph.len).flat_map(|row| row.chunks_exact(self.by));
            groups.map(|group| group.iter().all(|real| *real)).collect()
        };
        let mut aside = x.aside.clone();
        aside.push((NAME, GraphStream { aside: Vec::new(), ..x.clone() }));
        Ok(GraphStream { hidden: z, len, mask: x.mask.as_ref().map(real), aside, stack: x.stack })
    }

    fn matrices(&mut self) -> Vec<&mut Matrix> {
        Vec::new()
    }

    fn set_precision(&mut self, _: Precision) {}

    fn init_cache(&self, pass: &Pass<'_>, _: &LayerState) -> LayerState {
        LayerState::Own(Box::new(Rows(vec![Vec::new(); pass.batch])))
    }
}

struct UnpoolLayer {
    by: usize,
    d: usize,
}

impl UnpoolLayer {
    /// The group that each of `len` tokens after `before` gets, counted from 1; 0 for none.
    fn groups(&self, before: usize, len: usize) -> impl Iterator<Item = usize> {
        let by = self.by;
        (before..before + len).map(move |t| (t + 1) / by)
    }
}

impl Layer for UnpoolLayer {
    fn forward(&self, pass: &Pass<'_>, z: &Stream, _: Option<&Arc<Buf>>, state: &mut LayerState) -> (Stream, Saved) {
        let mut y = z.clone();
        // A block that is measured by itself has nothing beside it.
        let x = y.take(NAME).unwrap_or_else(|| {
            let len = z.len * self.by;
            Stream::new(Buf::zeros(pass.batch * len * self.d), len, z.position * self.by, None)
        });
        let had = z.aside.len() > y.aside.len();
        let mut out = Buf::copy(&x.hidden);
        let mut last = state.own::<Rows>();
        // Without a state a pass begins with its own first token.
        let (before, done) = if last.is_some() { (x.position, z.position) } else { (0, 0) };
        for (b, out) in out.chunks_exact_mut((x.len * self.d).max(1)).enumerate() {
            let now = &z.hidden[b * z.len * self.d..][..z.len * self.d];
            for (out, group) in out.chunks_exact_mut(self.d).zip(self.groups(before, x.len)) {
                if group > done {
                    linear::add(out, &now[(group - 1 - done) * self.d..][..self.d]);
                } else if let Some(last) = &last {
                    linear::add(out, &last.0[b]);
                }
            }
            if let (Some(last), Some(newest)) = (&mut last, now.chunks_exact(self.d).last()) {
                last.0[b] = newest.to_vec();
            }
        }
        let y = Stream {
            hidden: Arc::new(out),
            len: x.len,
            position: x.position,
            mask: x.mask,
            aside: y.aside,
            stack: x.stack,
        };
        (y, Box::new(had))
    }

    fn backward(&self, pass: &Pass<'_>, saved: Saved, dy: Buf, _: &mut Grads) -> Buf {
        let had: bool = *saved.downcast().expect("what this layer saved");
        let (all, groups) = (dy.len() / pass.batch, pass.len * self.d);
        let mut dz = Buf::zeros(pass.batch * groups);
        for b in 0..pass.batch {
            let rows = dy[b * all..][..all].chunks_exact(self.d);
            for (dy, group) in rows.zip(self.groups(0, all / self.d)).filter(|(_, group)| *group > 0) {
                linear::add(&mut dz[b * groups + (group - 1) * self.d..][..self.d], dy);
            }
        }
        if had {
            pass.aside_grads.lay(NAME, dy);
        }
        dz
    }

    fn composed(&self, graph: &Graph<'_>, z: &GraphStream, _: &mut Option<Tensor>) -> candle_core::Result<GraphStream> {
        let mut y = z.clone();
        let x = y.take(NAME).ok_or_else(|| candle_core::Error::Msg("an unpool without a pool".into()))?;
        let none = z.hidden.reshape((graph.batch, graph.len, self.d))?.pad_with_zeros(1, 1, 0)?;
        let groups: Vec<u32> = self.groups(0, x.len).map(|group| group as u32).collect();
        let added = none.index_select(&Tensor::new(groups, z.hidden.device())?, 1)?.reshape(((), self.d))?;
        Ok(GraphStream { hidden: (&x.hidden + added)?, len: x.len, mask: x.mask, aside: y.aside, stack: x.stack })
    }

    fn matrices(&mut self) -> Vec<&mut Matrix> {
        Vec::new()
    }

    fn set_precision(&mut self, _: Precision) {}

    fn init_cache(&self, pass: &Pass<'_>, _: &LayerState) -> LayerState {
        LayerState::Own(Box::new(Rows(vec![vec![0.0; self.d]; pass.batch])))
    }
}
