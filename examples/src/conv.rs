//! Causal depthwise convolution, `conv{width=4}`: y_t = (sum_k w_k * x_(t-k)) W + b with k below `width`. A block that mixes
//! tokens in its own way, with a state of its own for decoding (the last `width` - 1 inputs).
//!
//! | parameters | FLOPs of one sequence |
//! |---|---|
//! | width * D + D D + D | 2 T width D + 2 T D D |

use candle_core::Tensor;
use lathe_core::{Block, BlockKind, Cost, Domain, Frame, Knob, Result, Role, Setting};
use lathe_model::Graph;
use lathe_model::blocks::{memory_bytes, norm_params};
use lathe_model::build::{BuildBlock, LayerBuilder, Site};
use lathe_model::layer::{Layer, LayerState, OwnState, Pass, Saved, Sublayer};
use lathe_model::linear::{Linear, Matrix};
use lathe_model::params::{Builder, Grads, Init, ParamId};
use lathe_ops::buffer::Buf;
use lathe_ops::flops;
use std::any::Any;

/// The kind of block.
pub struct Conv;

const WIDTH: usize = 0;
const ROLE: Role = Role::MixesTokens;
const BYTES: u128 = 4;

fn width(block: &Block) -> u32 {
    block.get(WIDTH).unwrap_or(4)
}

impl BlockKind for Conv {
    fn key(&self) -> &'static str {
        "conv"
    }

    fn letter(&self) -> Option<char> {
        None
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob { name: "width", mark: None, domain: Domain::Int { min: 1, max: 64 } }]
    }

    fn resolve(&self, block: &Block, _: &Frame) -> Block {
        let mut block = *block;
        block.set(WIDTH, width(&block));
        block
    }

    fn check(&self, _: &Block, _: &Frame) -> Result<()> {
        Ok(())
    }

    fn cost(&self, block: &Block, frame: &Frame, setting: &Setting) -> Cost {
        let (d, k) = (u64::from(frame.d_model), u64::from(width(block)));
        let wide = u128::from(d);
        // A memory is convolved with what follows it.
        let all = u128::from(setting.batch) * u128::from(setting.tgt_len + setting.mem_len);
        Cost {
            params: k * d + d * d + d,
            norm_params: norm_params(frame),
            flops: 2 * all * u128::from(k) * wide + 2 * setting.tokens() * wide * wide,
            activation_bytes: setting.tokens() * BYTES * 3 * wide,
            state_bytes: if frame.has_memory() {
                memory_bytes(frame, setting.mem_len)
            } else {
                u128::from(k - 1) * wide * BYTES
            },
        }
    }

    fn role(&self) -> Role {
        ROLE
    }

    fn variants(&self, _: &Frame) -> Vec<Block> {
        let of = |width: u32| {
            let mut block = Block::new(&Self);
            block.set(WIDTH, width);
            block
        };
        [2, 4].map(of).into()
    }

    fn builder(&self) -> &'static dyn Any {
        &LayerBuilder(&Self)
    }
}

impl BuildBlock for Conv {
    fn build(&self, block: &Block, frame: &Frame, site: &Site<'_>, builder: &mut Builder) -> Option<Box<dyn Layer>> {
        let (d, width) = (frame.d_model as usize, width(block) as usize);
        let norm = site.norm(builder, ROLE, "conv.norm");
        let init = Init::Normal(0.0, 1.0 / (width as f32).sqrt());
        let kernel = builder.param(site.name(ROLE, "conv.kernel"), &[width, d], init);
        let out = site.linear(builder, &site.name(ROLE, "conv.out"), [d, d], site.style.output_deviation, true);
        let mem_len = if frame.has_memory() { Some(frame.mem_len as usize) } else { None };
        site.residual(ConvLayer { kernel, out, width, d, mem_len }, norm)
    }
}

struct ConvLayer {
    kernel: ParamId,
    out: Linear,
    width: usize,
    d: usize,
    /// Tokens of a memory, where the backbone has one.
    mem_len: Option<usize>,
}

/// The last `width` - 1 inputs of each sequence, [B, width - 1, D].
#[derive(Debug, Clone)]
struct History(Vec<f32>);

impl OwnState for History {
    fn boxed(&self) -> Box<dyn OwnState> {
        Box::new(self.clone())
    }
}

impl ConvLayer {
    /// The convolution of rows [S, D] after as many rows of history as the kernel reaches back.
    fn convolve(&self, kernel: &[f32], rows: &[f32], out: &mut [f32]) {
        let d = self.d;
        for (t, out) in out.chunks_exact_mut(d).enumerate() {
            out.fill(0.0);
            for (k, w) in kernel.chunks_exact(d).enumerate() {
                let x = &rows[(t + self.width - 1 - k) * d..][..d];
                out.iter_mut().zip(w.iter().zip(x)).for_each(|(y, (w, x))| *y += w * x);
            }
        }
    }

    /// Rows of a sequence behind its history, or behind zeros.
    fn behind(&self, history: Option<&[f32]>, rows: &[f32]) -> Vec<f32> {
        let before = (self.width - 1) * self.d;
        let mut all = history.map_or_else(|| vec![0.0; before], <[f32]>::to_vec);
        all.extend_from_slice(rows);
        all
    }
}

impl Sublayer for ConvLayer {
    fn forward(&self, pass: &Pass<'_>, input: &[f32], state: &mut LayerState) -> (Buf, Saved) {
        let kernel = pass.params.get(self.kernel);
        let all = input.len() / pass.batch; // S * D
        let mut mixed = Buf::any(pass.rows() * self.d);
        let mut history = state.own::<History>();
        for (b, (rows, mixed)) in input.chunks_exact(all).zip(mixed.chunks_exact_mut(pass.len * self.d)).enumerate() {
            let before = (self.width - 1) * self.d;
            let known = history.as_ref().map(|history| &history.0[b * before..][..before]);
            let rows = self.behind(known, rows);
            let mut out = vec![0.0; all];
            self.convolve(kernel, &rows, &mut out);
            mixed.copy_from_slice(&out[all - mixed.len()..]);
            if let Some(history) = &mut history {
                history.0[b * before..][..before].copy_from_slice(&rows[rows.len() - before..]);
            }
        }
        flops::add(1, [input.len() / self.d, self.d, self.width]);
        let mut out = Buf::any(mixed.len());
        self.out.forward(pass.params, &mixed, &mut out);
        (out, Box::new(mixed))
    }

    fn backward(&self, pass: &Pass<'_>, input: &[f32], saved: Saved, dout: &[f32], grads: &mut Grads) -> Buf {
        let mixed: Buf = *saved.downcast().expect("what this layer saved");
        let mut dmixed = Buf::any(mixed.len());
        self.out.backward_input(pass.params, dout, &mut dmixed, false);
        self.out.backward_params(&mixed, dout, grads);
        let (d, all) = (self.d, input.len() / pass.batch);
        let kernel = pass.params.get(self.kernel);
        let mut dkernel = vec![0.0; kernel.len()];
        let mut dinput = Buf::zeros(input.len());
        let first = all / d - pass.len; // rows of memory
        for b in 0..pass.batch {
            let (rows, drows) = (&input[b * all..][..all], &mut dinput[b * all..][..all]);
            for (t, dy) in dmixed[b * pass.len * d..][..pass.len * d].chunks_exact(d).enumerate() {
                for k in 0..self.width.min(first + t + 1) {
                    let at = (first + t - k) * d;
                    for i in 0..d {
                        dkernel[k * d + i] += dy[i] * rows[at + i];
                        drows[at + i] += dy[i] * kernel[k * d + i];
                    }
                }
            }
        }
        grads.add(self.kernel).iter_mut().zip(dkernel).for_each(|(sum, d)| *sum += d);
        dinput
    }

    fn composed(&self, graph: &Graph<'_>, input: &Tensor) -> candle_core::Result<Tensor> {
        let all = input.dim(0)? / graph.batch;
        let x = input.reshape((graph.batch, all, self.d))?.pad_with_zeros(1, self.width - 1, 0)?;
        let kernel = graph.var(self.kernel);
        let mut y = x.narrow(1, self.width - 1, all)?.broadcast_mul(&kernel.get(0)?)?;
        for k in 1..self.width {
            y = (y + x.narrow(1, self.width - 1 - k, all)?.broadcast_mul(&kernel.get(k)?)?)?;
        }
        let y = y.narrow(1, all - graph.len, graph.len)?.reshape(((), self.d))?;
        self.out.composed(graph, &y)
    }

    fn matrices(&mut self) -> Vec<&mut Matrix> {
        vec![&mut self.out.matrix]
    }

    fn init_memory(&self, batch: usize) -> LayerState {
        match self.mem_len {
            Some(mem_len) => LayerState::Memory(Buf::zeros(batch * mem_len * self.d)),
            None => LayerState::None,
        }
    }

    fn init_cache(&self, pass: &Pass<'_>, memory: &[f32]) -> LayerState {
        let before = (self.width - 1) * self.d;
        let mut history = vec![0.0; pass.batch * before];
        if !memory.is_empty() {
            let of_sequence = memory.len() / pass.batch;
            let known = before.min(of_sequence);
            for (to, from) in history.chunks_exact_mut(before.max(1)).zip(memory.chunks_exact(of_sequence)) {
                to[before - known..].copy_from_slice(&from[of_sequence - known..]);
            }
        }
        LayerState::Own(Box::new(History(history)))
    }
}
