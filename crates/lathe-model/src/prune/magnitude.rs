//! Fewer weights that are not zero: those of the blocks' matrices that are smallest become 0 and stay so (Han et al.,
//! 2015). Embeddings, the output layer, biases and norms are left alone.
//!
//! Arrays keep their sizes: such a network is smaller where it is compressed, and computes as long as before.

use crate::{Network, Owner, Param};

/// Which weights of the blocks' matrices stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mask {
    /// For each parameter, whether each of its weights stays; `None` where all do.
    kept: Vec<Option<Vec<bool>>>,
}

/// The values of the parameters that can lose weights, by their place among all.
fn matrices(network: &Network) -> impl Iterator<Item = (usize, &Param)> {
    let owners = network.owners();
    network.params().iter().enumerate().filter(|(at, _)| owners[*at] == Owner::Block)
}

impl Mask {
    fn new(network: &Network, of_matrix: impl Fn(usize, &Param) -> Vec<bool>) -> Self {
        let mut kept: Vec<Option<Vec<bool>>> = vec![None; network.params().iter().len()];
        matrices(network).for_each(|(at, param)| kept[at] = Some(of_matrix(at, param)));
        Self { kept }
    }

    /// All that is not zero stays.
    pub fn of_zeros(network: &Network) -> Self {
        Self::new(network, |_, param| param.read().iter().map(|&w| w != 0.0).collect())
    }

    /// The smallest weights go: this share of all, or of each matrix where that is wanted evenly. What is 0 goes first.
    pub fn of_smallest(network: &Network, share: f64, evenly: bool) -> Self {
        let sizes = |param: &Param| param.read().iter().map(|w| w.abs()).collect::<Vec<f32>>();
        if evenly {
            return Self::new(network, |_, param| {
                let sizes = sizes(param);
                let (limit, mut ties) = limit(sizes.clone(), share);
                sizes.iter().map(|&size| stays(size, limit, &mut ties)).collect()
            });
        }
        let all = matrices(network).flat_map(|(_, param)| sizes(param)).collect();
        let (limit, ties) = limit(all, share);
        let ties = std::cell::Cell::new(ties);
        Self::new(network, |_, param| {
            let mut left = ties.get();
            let kept = sizes(param).iter().map(|&size| stays(size, limit, &mut left)).collect();
            ties.set(left);
            kept
        })
    }

    /// Sets what does not stay to 0, in the weights of a network, in their gradients or in their moments.
    pub fn apply<'a>(&self, values: impl Iterator<Item = &'a mut [f32]>) {
        for (values, kept) in values.zip(&self.kept) {
            let Some(kept) = kept else { continue };
            values.iter_mut().zip(kept).filter(|(_, stays)| !**stays).for_each(|(value, _)| *value = 0.0);
        }
    }

    /// Sets what does not stay to 0 in a network whose weights are f32.
    pub fn apply_to(&self, network: &mut Network) {
        self.apply(network.params_mut().map(|param| param.data.as_mut_slice()));
    }

    /// The share of the blocks' weights that goes.
    pub fn sparsity(&self) -> f64 {
        let all = self.kept.iter().flatten().flatten();
        let (gone, count) = all.fold((0u64, 0u64), |(gone, count), stays| (gone + u64::from(!stays), count + 1));
        gone as f64 / count.max(1) as f64
    }
}

/// The size below which all go, and how many of just this size go too, so that it is the share.
fn limit(mut sizes: Vec<f32>, share: f64) -> (f32, usize) {
    let count = ((share * sizes.len() as f64).round() as usize).min(sizes.len());
    if count == 0 {
        return (0.0, 0);
    }
    let (below, &mut limit, _) = sizes.select_nth_unstable_by(count - 1, f32::total_cmp);
    (limit, count - below.iter().filter(|&&size| size < limit).count())
}

fn stays(size: f32, limit: f32, ties: &mut usize) -> bool {
    if size == limit && *ties > 0 {
        *ties -= 1;
        return false;
    }
    size >= limit
}

/// How many numbers of a network are not 0.
pub fn nonzero(network: &Network) -> u64 {
    network.params().iter().map(|param| param.read().iter().filter(|&&w| w != 0.0).count() as u64).sum()
}
