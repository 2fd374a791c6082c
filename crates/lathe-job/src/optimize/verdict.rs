//! What came of a job in one sentence, honest at any outcome.

use super::outcome::Outcome;

/// Bits per byte that differ by less, in per cent, are the same.
const SAME: f64 = 0.05;
/// A model that is worse by at most this, in per cent, is as good.
const AS_GOOD: f64 = 1.0;
/// Metrics of examples that differ by at most this are the same.
const POINT: f64 = 0.01;

/// How fast, how good, what training the original on would have given, and whether what was asked for was reached.
pub fn verdict(outcome: &Outcome) -> String {
    let test = &outcome.test;
    let faster = outcome.speedup_interval[0] > 1.0;
    if let (Some((name, before)), Some((_, after))) = (test.baseline.metric(), test.found.metric()) {
        let and = if faster == (after >= before - POINT) { "and" } else { "but" };
        let vectors =
            outcome.cosine.map(|cosine| format!("; its vectors have a cosine of {cosine:.4} with the original's"));
        let (quality, vectors) = (of_examples(name, before, after), vectors.unwrap_or_default());
        return format!("{}, {and} {quality}{vectors}{}.", speed(outcome), missed(outcome));
    }
    let change = |bits: f64| 100.0 * (bits / test.baseline.bits_per_byte - 1.0);
    let found = change(test.found.bits_per_byte);
    let as_good = found <= AS_GOOD;
    format!(
        "{}, {} {}{}{}.",
        speed(outcome),
        if faster == as_good { "and" } else { "but" },
        quality(found, is_recovered(outcome)),
        test.continued.as_ref().map(|control| control_says(change(control.bits_per_byte), found)).unwrap_or_default(),
        missed(outcome)
    )
}

/// How good predictions of examples are.
fn of_examples(name: &str, before: f64, after: f64) -> String {
    let what = match after - before {
        change if change > POINT => "better",
        change if change >= -POINT => "as good",
        _ => "worse",
    };
    format!("{what}: {name} {after:.3}, where the original has {before:.3}")
}

fn speed(outcome: &Outcome) -> String {
    let ([low, high], speedup) = (outcome.speedup_interval, outcome.speedup);
    if low > 1.0 {
        format!("{speedup:.2} times as fast as the original")
    } else if high < 1.0 {
        format!("Slower than the original ({speedup:.2} times as fast)")
    } else {
        "No faster than the original".into()
    }
}

/// Whether the model learnt anything after it was assembled.
fn is_recovered(outcome: &Outcome) -> bool {
    outcome.proposers.iter().any(|one| outcome.from.contains(&one.name) && !one.rounds.is_empty())
}

fn quality(change: f64, recovered: bool) -> String {
    match change {
        change if change < -SAME && recovered => {
            format!("{:.1} % better on this text, since it learnt from it", -change)
        }
        change if change < -SAME => format!("{:.1} % better on this text", -change),
        change if change < SAME => "as good".into(),
        change if change <= AS_GOOD => format!("as good to {change:.1} %"),
        change => format!("{change:.1} % worse"),
    }
}

/// The original, trained on for as many steps: told where the found model is better, too, or where it is better than both.
fn control_says(control: f64, found: f64) -> String {
    let better = control < -SAME;
    if better && control < found - SAME {
        format!("; the original, trained on for as many steps, is {:.1} % better than it was", -control)
    } else if found < -SAME {
        let kept = if better { format!("gets {:.1} % better", -control) } else { "gets no better".into() };
        format!("; the original, trained on for as many steps, {kept}")
    } else {
        String::new()
    }
}

fn missed(outcome: &Outcome) -> String {
    let share = outcome.found.latency_ms / outcome.baseline.latency_ms;
    match outcome.target {
        _ if outcome.target_met => String::new(),
        Some(target) if share > target => {
            format!("; the target was missed: {share:.3} of the latency, and not {target:.3}")
        }
        _ => "; what was asked for was not reached".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimize::{Control, Judged, Proposed, Recipe, Side, Tested};
    use lathe_train::evaluate::Evaluation;

    /// Milliseconds of both, and bits per byte of both and of the control.
    fn outcome(ms: [f64; 2], bits: [f64; 3]) -> Outcome {
        let judged = |bits: f64| Evaluation {
            loss: bits,
            perplexity: bits.exp(),
            bits_per_byte: bits,
            tokens: 1000,
            ..Evaluation::NONE
        };
        let side =
            |latency_ms| Side { layers: "(sf)x2".into(), latency_ms, peak_bytes: None, bytes: None, valid: None };
        let speedup = ms[0] / ms[1];
        let proposed = Proposed {
            name: "blockwise".into(),
            layers: "sf".into(),
            loss: bits[1],
            assembled: 2.0 * bits[1],
            latency_ms: ms[1],
            rounds: vec![Judged { steps: 10, loss: bits[1] }],
        };
        Outcome {
            baseline: side(ms[0]),
            found: side(ms[1]),
            speedup,
            speedup_interval: [0.98 * speedup, 1.02 * speedup],
            target: Some(0.5),
            target_met: ms[1] <= 0.5 * ms[0],
            estimated_latency: 0.5,
            from: vec!["blockwise".into()],
            test: Tested { baseline: judged(bits[0]), found: judged(bits[1]), continued: Some(judged(bits[2])) },
            outside: None,
            kl: None,
            same_top: None,
            cosine: None,
            levers: Vec::new(),
            frontier: Vec::new(),
            proposers: vec![proposed],
            recipe: Recipe::Text,
            recipes: Vec::new(),
            audit: None,
            control: Control { steps: 10, folder: "recover/continued/text".into() },
            samples: Vec::new(),
            seconds: 60.0,
            report: "report.html".into(),
        }
    }

    #[test]
    fn faster_and_as_good() {
        let told = |bits| verdict(&outcome([4.0, 2.0], [1.0, bits, 1.2]));
        assert_eq!(told(1.0), "2.00 times as fast as the original, and as good.");
        assert_eq!(told(1.004), "2.00 times as fast as the original, and as good to 0.4 %.");
    }

    #[test]
    fn faster_and_worse() {
        let told = |control| verdict(&outcome([4.0, 2.0], [1.0, 1.478, control]));
        assert_eq!(told(1.1), "2.00 times as fast as the original, but 47.8 % worse.");
        assert_eq!(
            told(0.9),
            "2.00 times as fast as the original, but 47.8 % worse; the original, trained on for as many steps, is 10.0 % \
             better than it was."
        );
    }

    #[test]
    fn better_and_what_the_control_says() {
        let told = |control| verdict(&outcome([4.0, 2.0], [1.0, 0.91, control]));
        let better = "2.00 times as fast as the original, and 9.0 % better on this text, since it learnt from it; the \
                      original, trained on for as many steps, ";
        assert_eq!(told(0.855), format!("{better}is 14.5 % better than it was."));
        assert_eq!(told(0.95), format!("{better}gets 5.0 % better."));
        assert_eq!(told(1.1), format!("{better}gets no better."));
    }

    #[test]
    fn fewer_bits_alone_learn_nothing() {
        let mut found = outcome([4.0, 2.0], [1.0, 0.999, 1.0]);
        found.proposers[0].rounds.clear();
        assert!(verdict(&found).contains("and 0.1 % better on this text;"), "{}", verdict(&found));
    }

    #[test]
    fn no_faster() {
        let told = |ms, bits| verdict(&Outcome { target_met: true, ..outcome([4.0, ms], [1.0, bits, 1.2]) });
        assert_eq!(told(4.0, 1.0), "No faster than the original, but as good.");
        assert_eq!(told(4.0, 1.2), "No faster than the original, and 20.0 % worse.");
        assert_eq!(told(5.0, 1.2), "Slower than the original (0.80 times as fast), and 20.0 % worse.");
    }

    #[test]
    fn what_was_missed() {
        let late = verdict(&outcome([4.0, 2.2], [1.0, 1.0, 1.0]));
        assert!(late.ends_with("as good; the target was missed: 0.550 of the latency, and not 0.500."), "{late}");
        let other = Outcome { target_met: false, target: None, ..outcome([4.0, 2.0], [1.0, 1.3, 1.0]) };
        assert!(verdict(&other).ends_with("30.0 % worse; what was asked for was not reached."), "{}", verdict(&other));
    }
}
