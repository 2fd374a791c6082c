//! Metrics against scikit-learn, scipy and the benchmarks' own scripts, from a file that `oracles/scores.py` wrote.

use lathe_train::examples::scores::{Metric, Predicted};
use serde_json::Value;

fn numbers(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap() as usize).collect()
}

fn floats(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn words(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_string()).collect()
}

fn check(case: &Value, metrics: &[Metric], predicted: &Predicted<'_>) {
    for metric in metrics {
        let (found, expected) = (metric.of(predicted).unwrap(), case[metric.name()].as_f64().unwrap());
        assert!((found - expected).abs() < 1e-9, "{}: {found} and {expected}", metric.name());
    }
}

#[test]
fn metrics_are_those_of_the_reference() {
    let path = format!("{}/tests/it/fixtures/scores.json", env!("CARGO_MANIFEST_DIR"));
    let cases: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let of = |kind: &str| cases[kind].as_array().unwrap().clone();
    assert!(of("labels").len() > 3 && of("values").len() > 1 && of("texts").len() == 1);
    for case in of("labels") {
        let (found, right, groups) = (numbers(&case["found"]), numbers(&case["right"]), words(&case["groups"]));
        let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        let labels = case["labels"].as_u64().unwrap() as usize;
        let predicted = Predicted::Labels { found: &found, right: &right, labels, groups: &groups };
        let metrics = [Metric::Accuracy, Metric::F1, Metric::Matthews, Metric::GroupExact, Metric::GenderParity];
        check(&case, &metrics, &predicted);
        assert_eq!(Metric::Pearson.of(&predicted), None);
    }
    for case in of("values") {
        let (found, right) = (floats(&case["found"]), floats(&case["right"]));
        let predicted = Predicted::Values { found: &found, right: &right };
        check(&case, &[Metric::Pearson, Metric::Spearman], &predicted);
    }
    for case in of("texts") {
        let right: Vec<Vec<String>> = case["right"].as_array().unwrap().iter().map(words).collect();
        let predicted = Predicted::Texts { found: &words(&case["found"]), right: &right };
        check(&case, &[Metric::AnswerExact, Metric::AnswerF1], &predicted);
    }
}
