//! The estimated cost of a mixture, and the loss that pushes it below a target (PLANER, equations 2 and 3).
//!
//! Lat = fixed + sum over slots of sum_i P_i Lat_i, with the costs of single blocks from a table. With the baseline's
//! sum from the same table, Loss = Lat / (Lat_baseline * Target) while that is above 1, and 0 from there on. Its
//! gradient for alpha, P_i (Lat_i - Lat_slot) / (tau * Lat_baseline * Target), does not depend on how much is left to
//! go: the loss is a switch, not a spring.
//!
//! Any cost that adds up over blocks can stand for latency, such as bytes of memory.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// What blocks cost, in microseconds or any other unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostTable {
    /// Of each option of each slot.
    pub slots: Vec<Vec<f64>>,
    /// Of what every architecture has: embedding and output.
    pub fixed: f64,
    /// Of the whole baseline.
    pub baseline: f64,
}

/// The most that an architecture may cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// As a share of the baseline's cost.
    Ratio(f64),
    /// In the table's unit.
    Absolute(f64),
}

/// The loss of a mixture.
#[derive(Debug, Clone, PartialEq)]
pub struct Loss {
    /// Estimate over target while that is above 1, else 0.
    pub value: f64,
    /// Equation 2, in the table's unit.
    pub estimate: f64,
    /// The gradient for the probabilities.
    pub dp: Vec<Vec<f64>>,
}

impl CostTable {
    /// Checks that the numbers are costs.
    pub fn check(&self) -> Result<()> {
        let all = self.slots.iter().flatten().chain([&self.fixed]);
        if let Some(wrong) = all.into_iter().find(|cost| !cost.is_finite() || **cost < 0.0) {
            return Err(Error::data("table of latencies", wrong, "finite numbers from 0 on"));
        }
        if !self.baseline.is_finite() || self.baseline <= 0.0 {
            return Err(Error::data("table of latencies", self.baseline, "a baseline that takes time"));
        }
        Ok(())
    }

    /// The cost of a mixture (equation 2).
    pub fn estimate(&self, p: &[Vec<f64>]) -> f64 {
        let slot = |(p, costs): (&Vec<f64>, &Vec<f64>)| -> f64 { p.iter().zip(costs).map(|(p, cost)| p * cost).sum() };
        self.fixed + p.iter().zip(&self.slots).map(slot).sum::<f64>()
    }

    /// The cost of an architecture: one option per slot.
    pub fn of(&self, choice: &[usize]) -> f64 {
        self.fixed + choice.iter().zip(&self.slots).map(|(&option, costs)| costs[option]).sum::<f64>()
    }

    /// The cheapest architecture.
    pub fn cheapest(&self) -> Vec<usize> {
        let cheapest = |costs: &Vec<f64>| (0..costs.len()).fold(0, |a, b| if costs[b] < costs[a] { b } else { a });
        self.slots.iter().map(cheapest).collect()
    }

    /// The most that an architecture may cost to meet a target, in the table's unit.
    pub fn limit(&self, target: Target) -> f64 {
        match target {
            Target::Ratio(ratio) => ratio * self.baseline,
            Target::Absolute(cost) => cost,
        }
    }

    /// The loss of a mixture (equation 3).
    pub fn loss(&self, p: &[Vec<f64>], target: Target) -> Loss {
        let limit = self.limit(target);
        let estimate = self.estimate(p);
        let beta = if estimate / limit > 1.0 { 1.0 } else { 0.0 };
        let dp = self.slots.iter().map(|costs| costs.iter().map(|cost| beta * cost / limit).collect()).collect();
        Loss { value: beta * estimate / limit, estimate, dp }
    }
}

#[cfg(test)]
mod tests {
    use super::super::gumbel::Sample;
    use super::*;

    fn table() -> CostTable {
        CostTable { slots: vec![vec![10.0, 2.0, 0.0], vec![5.0, 1.0]], fixed: 3.0, baseline: 18.0 }
    }

    #[test]
    fn estimates_by_hand() {
        let table = table();
        assert_eq!(table.estimate(&[vec![0.5, 0.25, 0.25], vec![0.2, 0.8]]), 3.0 + 5.5 + 1.8);
        assert_eq!(table.of(&[0, 1]), 14.0);
        assert_eq!(table.estimate(&[vec![1.0, 0.0, 0.0], vec![0.0, 1.0]]), table.of(&[0, 1]));
        assert_eq!(table.cheapest(), [2, 1]);
    }

    #[test]
    fn the_gate_closes_at_the_target() {
        let table = table();
        let p = [vec![1.0, 0.0, 0.0], vec![1.0, 0.0]]; // 18, the baseline itself
        assert_eq!(table.loss(&p, Target::Ratio(1.0)).value, 0.0);
        assert!(table.loss(&p, Target::Ratio(1.0)).dp.iter().flatten().all(|&dp| dp == 0.0));
        assert_eq!(table.loss(&p, Target::Ratio(0.5)).value, 2.0);
        assert_eq!(table.loss(&p, Target::Ratio(0.5)), table.loss(&p, Target::Absolute(9.0)));
    }

    #[test]
    fn the_gradient_for_alpha_is_that_of_finite_differences_and_of_the_formula() {
        let table = table();
        let (target, tau) = (Target::Ratio(0.3), 0.7);
        let alpha = [vec![0.3, -0.5, 0.1], vec![0.2, 0.4]];
        let noise = [vec![0.1, 0.9, -0.2], vec![-0.4, 0.3]];
        let samples = |alpha: &[Vec<f64>; 2]| [0, 1].map(|s| Sample::new(&alpha[s], &noise[s], tau));
        let value = |alpha: &[Vec<f64>; 2]| table.loss(&samples(alpha).map(|sample| sample.soft), target).value;
        let at = samples(&alpha);
        let p = at.each_ref().map(|sample| sample.soft.clone());
        let loss = table.loss(&p, target);
        assert!(loss.value > 1.0);
        for s in 0..2 {
            let found = at[s].backward(&loss.dp[s]);
            let slot: f64 = p[s].iter().zip(&table.slots[s]).map(|(p, cost)| p * cost).sum();
            for i in 0..found.len() {
                let mut moved = [alpha.clone(), alpha.clone()];
                moved[0][s][i] += 1e-6;
                moved[1][s][i] -= 1e-6;
                let slope = (value(&moved[0]) - value(&moved[1])) / 2e-6;
                assert!((found[i] - slope).abs() < 1e-8, "{} is not {slope}", found[i]);
                let formula = p[s][i] * (table.slots[s][i] - slot) / (tau * table.limit(target));
                assert!((found[i] - formula).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn numbers_that_are_no_costs_are_refused() {
        for (slots, baseline) in [(vec![vec![f64::NAN]], 1.0), (vec![vec![-1.0]], 1.0), (vec![vec![1.0]], 0.0)] {
            assert!(CostTable { slots, fixed: 0.0, baseline }.check().is_err());
        }
    }
}
