//! Differentiable searches, through the program.

use crate::{fails, json};

const SPACE: &str = r#"
[baseline]
backbone = "transformer_xl"
layers = "(sf)x2"
d_model = 16
vocab = 256
heads = 2
inner = 32
tgt_len = 16

[[slots]]
repeat = 4
options = ["s", "f", "-"]
"#;
const TABLE: &str = r#"{"blocks": [{"block": "s2", "latency_us": {"median": 30}},
    {"block": "f", "latency_us": {"median": 10}}], "frame_us": 20}"#;

#[test]
fn a_differentiable_search_ends_with_an_architecture_that_meets_its_target() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name).display().to_string();
        std::fs::write(&path, content).expect("a file");
        path
    };
    let (space, table) = (file("space.toml", SPACE), file("table.json", TABLE));
    let out = folder.path().join("out").display().to_string();
    let base = ["search", "differentiable", &space, "--data", "builtin:0.1", "--batch", "4", "--steps", "20"];
    let run = |more: &[&str]| json(&[base.as_slice(), more].concat());
    let refused = |more: &[&str]| fails(&[base.as_slice(), more].concat());
    let found = run(&["--target-latency", "0.6", "--table", &table, "--rounds", "5", "--out", &out]);
    assert_eq!((found["target"].as_f64(), found["steps"].as_u64()), (Some(0.6), Some(20)));
    assert_eq!(found["baseline"]["latency_us"], 100.0);
    let estimate = found["estimated_latency"].as_f64().expect("a number");
    assert!(estimate <= 0.6 + 1e-9);
    // The estimate is the table's, of the layers that are named.
    let model = std::path::Path::new(&out).join("found.toml").display().to_string();
    let counted = json(&["count", &model]);
    assert_eq!((&counted["layers"], counted["blocks"].as_u64()), (&found["layers"], Some(4)));
    let params = |kind: &str| counted["params"][kind].as_f64().expect("a number");
    let (attention, ffn) = (params("attention") / (5.0 * 256.0 + 32.0), params("ffn") / (2.0 * 512.0 + 48.0));
    assert!((estimate - (0.2 + 0.3 * attention + 0.1 * ffn)).abs() < 1e-9, "{found}");
    assert_eq!(json(&["search", "differentiable", "--resume", &out]), found, "what has ended is told again");

    // Measured, and by PAR's protocol, without a folder or a target.
    let par = run(&["--preset", "par", "--rounds", "2"]);
    assert!(par["target"].is_null() && par["estimated_latency"].is_f64(), "{par}");

    // Within a share of the baseline's memory.
    let small = run(&["--target-memory", "0.9", "--rounds", "2"]);
    assert_eq!((small["target"].as_f64(), small["cost"].as_str()), (Some(0.9), Some("memory")));
    assert!(small["estimated_latency"].as_f64() <= Some(0.9) && small["layers"] != "(sf)x2", "{small}");

    // From the weights of the baseline, whose blocks are the most probable at first; where no slot offers one, an error.
    let trained = folder.path().join("trained").display().to_string();
    let model = file(
        "model.toml",
        SPACE.split("[[slots]]").next().and_then(|text| text.split_once("[baseline]")).expect("a model").1,
    );
    json(&["train", "--model", &model, "--data", "builtin:0.1", "--steps", "2", "--batch", "4", "--out", &trained]);
    let init = ["--target-latency", "0.9", "--table", &table, "--init", &trained, "--baseline-share", "0.5"];
    assert!(run(&init)["loss"].as_f64() > Some(0.0));
    let narrow = file("narrow.toml", &SPACE.replace(r#""f", "#, r#""f8", "#));
    let narrow = ["search", "differentiable", &narrow, "--data", "builtin:0.1", "--steps", "2"];
    let (code, error) = fails(
        &[&narrow, init.as_slice()]
            .concat()
            .iter()
            .filter(|&&arg| arg != "--table" && arg != table)
            .copied()
            .collect::<Vec<_>>(),
    );
    assert!(code == 2 && error.contains("a space whose every slot offers the baseline's block"), "{error}");

    let (code, error) = refused(&["--target-latency", "0.1", "--table", &table]);
    assert!(
        error.contains("target-latency: found 0.1, which no architecture meets; expected at least 0.2,"),
        "{error}"
    );
    assert_eq!(code, 2);
    let (code, error) = refused(&[]);
    assert!(error.contains("target-latency: found nothing; expected a target"), "{error}");
    assert_eq!(code, 2);
    let (code, error) = fails(&["search", "differentiable", "lts_gpt2", "--target-latency", "0.5"]);
    assert!(error.contains("lts_gpt2: choices: found models that differ in d_model"), "{error}");
    assert_eq!(code, 2);
    let missing = file("missing.json", r#"{"blocks": []}"#);
    let (code, error) = refused(&["--target-latency", "0.5", "--table", &missing]);
    assert!(error.contains("table of latencies: found no latency of s"), "{error}");
    assert_eq!(code, 1);
}
