//! Profiling and searching, through the program.

use crate::{command, fails, json, text};
use serde_json::Value;
use tempfile::TempDir;

const SPACE: &str = r#"
[baseline]
backbone = "gpt2"
layers = "(sf)x2"
d_model = 32
vocab = 256
heads = 2
inner = 64
tgt_len = 16
max_len = 16

[choices]
d_model = [16, 32]

[[slots]]
repeat = { min = 1, max = 3 }
options = ["sf"]
knobs = { heads = [1, 2], inner = [32, 64, 96] }
"#;

const ONE: &str = r#"
[baseline]
backbone = "gpt2"
layers = "sf"
d_model = 16
vocab = 256
tgt_len = 8
max_len = 8

[[slots]]
repeat = 1
options = ["s1 f32"]
"#;

/// A folder with spaces, and a cache that no other test sees.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("space.toml"), SPACE).expect("a file");
        std::fs::write(folder.path().join("one.toml"), ONE).expect("a file");
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Runs `lathe --json` with this place's cache.
    fn json(&self, args: &[&str]) -> Value {
        let out = command(args).arg("--json").env("LATHE_CACHE", self.path("cache")).output().expect("the binary runs");
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&out.stdout).expect("JSON")
    }

    /// A table of the space.
    fn table(&self) -> String {
        let table = self.path("table.json");
        self.json(&["profile", &self.path("space.toml"), "--out", &table]);
        table
    }
}

#[test]
fn a_profile_has_every_block_and_is_reused() {
    let place = Place::new();
    let profile = || place.json(&["profile", &place.path("space.toml")]);
    let first = profile();
    let blocks = first["blocks"].as_array().expect("a list");
    // 2 attention and 3 feed-forward blocks in each of 2 widths, and 2 frames.
    assert_eq!(blocks.len(), 2 * (2 + 3) + 2);
    for block in blocks {
        let latency = |key: &str| block["latency_us"][key].as_f64().expect("a number");
        assert!(0.0 < latency("low") && latency("low") <= latency("median") && latency("median") <= latency("high"));
        // At the least, a part takes a copy of the hidden states.
        let [peak, held, width] = ["peak_bytes", "held_bytes", "d_model"].map(|key| block[key].as_u64().expect(key));
        assert!(peak >= held + 4 * 16 * width && held > 0, "{block}");
        assert_eq!((block["batch"].as_u64(), block["seq"].as_u64()), (Some(1), Some(16)));
    }
    assert!(first["machine"]["cpu"].is_string());
    assert_eq!(profile()["blocks"], first["blocks"]); // not measured again
    let fresh = place.json(&["profile", &place.path("space.toml"), "--fresh"]);
    assert_ne!(fresh["blocks"], first["blocks"]);
}

#[test]
fn sums_predict_whole_models() {
    let place = Place::new();
    let profile = place.json(&["profile", &place.path("space.toml"), "--models", "4", "--check", "3"]);
    assert_eq!(profile["calibration"]["models"], 4);
    let models = profile["check"]["models"].as_array().expect("a list");
    assert_eq!(models.len(), 3);
    assert!(
        models
            .iter()
            .all(|model| model["predicted_ms"].as_f64() > Some(0.0) && model["predicted_bytes"].as_f64() > Some(0.0))
    );
}

#[test]
fn tables_that_do_not_fit_are_refused() {
    let place = Place::new();
    let (space, table) = (place.path("space.toml"), place.table());
    let good = std::fs::read_to_string(&table).expect("a table");
    let refused = |content: &str, args: &[&str], word: &str| {
        std::fs::write(&table, content).expect("a file");
        let out = place.path("never");
        let args = [&["search", "pareto", &space, "--table", &table, "--out", &out], args].concat();
        let (code, error) = fails(&args);
        assert!(code == 1 && error.contains(word), "{code} {error}");
    };
    let machine: Value = serde_json::from_str(&good).expect("JSON");
    let cpu = machine["machine"]["cpu"].as_str().expect("a name");
    refused(&good.replace(cpu, "abacus"), &[], "another machine (CPU abacus");
    refused(&good[..good.len() / 2], &[], "a table that a profile wrote");
    refused(&good, &["--batch", "2"], "a table for inference, batch 1");
    refused(&good.replace("f64\"", "f65\""), &[], "nothing for f64");
}

fn pareto(place: &Place, out: &str, more: &[&str]) -> Value {
    let (space, table, out) = (place.path("space.toml"), place.path("table.json"), place.path(out));
    let args = [
        "search",
        "pareto",
        &space,
        "--table",
        &table,
        "--no-measure",
        "--population",
        "10",
        "--iterations",
        "5",
        "--out",
        &out,
    ];
    place.json(&[&args, more].concat())
}

#[test]
fn searches_with_a_table_repeat_and_go_on() {
    let place = Place::new();
    place.table();
    let first = pareto(&place, "a", &[]);
    let second = pareto(&place, "b", &[]);
    let same = |a: &Value, b: &Value| {
        for key in ["frontier", "baselines", "evaluated"] {
            assert_eq!(a[key], b[key], "{key}");
        }
    };
    same(&first, &second);
    let points = first["frontier"].as_array().expect("a list");
    assert!(!points.is_empty());
    for (i, point) in points.iter().enumerate() {
        // Whatever the folder holds is what was found.
        let file = std::fs::read_to_string(place.path(&format!("a/frontier/{:03}.toml", i + 1))).expect("a model file");
        let layers = point["layers"].as_str().expect("a stack");
        assert!(file.contains(&format!("layers = {layers:?}")), "{file}");
        let counted = json(&["count", &place.path(&format!("a/frontier/{:03}.toml", i + 1))]);
        assert_eq!(counted["params"]["decoder"], point["params"]["decoder"]);
    }
    // A search that was killed in the middle of a line.
    let record = place.path("b/candidates.jsonl");
    let text = std::fs::read_to_string(&record).expect("a record");
    std::fs::write(&record, &text[..text.len() / 2]).expect("a file");
    same(&first, &pareto(&place, "b", &[]));
    // Other settings do not fit the folder.
    let (space, out) = (place.path("space.toml"), place.path("a"));
    let (code, error) = fails(&["search", "pareto", &space, "--out", &out, "--seed", "9"]);
    assert!(code == 2 && error.contains("other settings"), "{error}");
    for page in ["report.html", "frontier.svg", "frontier.csv", "frontier.json"] {
        assert!(std::fs::metadata(place.path(&format!("a/{page}"))).expect("a file").len() > 0);
    }
}

#[test]
fn the_correction_of_a_table_is_used() {
    let place = Place::new();
    let path = place.path("table.json");
    place.json(&["profile", &place.path("space.toml"), "--models", "4", "--out", &path]);
    let mut table: Value = serde_json::from_str(&std::fs::read_to_string(&path).expect("a table")).expect("JSON");
    assert_eq!(table["calibration"]["models"], 4);
    // Twice as much of everything is the same search.
    let mut latencies = |factor: f64, out: &str| -> Vec<f64> {
        table["calibration"]["latency"] = serde_json::json!([factor, factor, 0.0]);
        std::fs::write(&path, table.to_string()).expect("a file");
        let found = pareto(&place, out, &[]);
        let points = found["frontier"].as_array().expect("a list").iter();
        points.filter_map(|point| point["latency_ms"].as_f64()).collect()
    };
    let (once, twice) = (latencies(1.0, "once"), latencies(2.0, "twice"));
    assert_eq!(once.iter().map(|ms| 2.0 * ms).collect::<Vec<_>>(), twice);
}

#[test]
fn every_searcher_searches_and_frontiers_compare() {
    let place = Place::new();
    place.table();
    for searcher in ["lts", "nsga2", "random"] {
        let found = pareto(&place, searcher, &["--searcher", searcher]);
        // Where a small frontier has no new crossover left, fewer.
        let (least, most) = (if searcher == "lts" { 30 } else { 50 }, 10 + 5 * 8);
        let evaluated = found["evaluated"].as_u64().expect("a number");
        assert!((least..=most).contains(&evaluated), "{searcher}: {evaluated}");
    }
    let hull = pareto(&place, "hull", &["--hull"]);
    let all = pareto(&place, "all", &[]);
    assert!(hull["frontier"].as_array().map(Vec::len) <= all["frontier"].as_array().map(Vec::len));
    let folders = ["lts", "nsga2", "random"].map(|name| place.path(name));
    let compared = json(&["search", "compare", &folders[0], &folders[1], &folders[2]]);
    let measured = json(&["search", "compare", &folders[0], &folders[2], "--measure", "2"]);
    assert!(measured["searches"].as_array().expect("a list").iter().all(|one| one["points"].as_u64() <= Some(2)));
    for one in [compared, measured].iter().flat_map(|document| document["searches"].as_array().expect("a list")) {
        let volume = one["hypervolume"].as_f64().expect("a number");
        assert!(volume > 0.0 && volume <= 1.1f64.powi(3), "{volume}");
        let recalibrated = one["recalibrated"].as_array().expect("a list").len() as u64;
        assert!(recalibrated > 0 && Some(recalibrated) <= one["points"].as_u64(), "{one}");
        assert!(one["d_avg"].as_f64().expect("a number") >= 0.0, "{one}");
    }
    let (code, error) = fails(&["search", "compare", &place.path("none")]);
    assert!(code == 2 && error.contains("expected a search that has ended"), "{error}");
    assert!(text(&["search", "compare", &folders[0]]).contains("hypervolume"));
}

#[test]
fn tables_tell_the_price_of_the_wrong_device() {
    let place = Place::new();
    let header = "table,backbone,name,n_layer,d_model,d_embed,div_val,n_head,d_inner,n_token,cutoffs,tgt_len,mem_len,\
                  params_total,valid_ppl,device,latency";
    // Here time grows with the width, there with the layers: 4 and 1 for 4 layers of 64, 2 and 4 for one of 256.
    let row = |name: &str, layers: usize, inner: u32, ppl: f64, device: &str, ms: f64| {
        let list = |item: u32| vec![item.to_string(); layers].join(" ");
        format!("t,GPT2,{name},{layers},64,,1,{},{},50,,16,16,9,{ppl},{device},{ms}", list(2), list(inner))
    };
    let of = |device: &str, ms: [f64; 3]| {
        let rows = [row("deep", 4, 64, 30.0, device, ms[0]), row("wide", 1, 256, 30.0, device, ms[1])];
        let rows = [rows.to_vec(), vec![row("small", 1, 64, 50.0, device, ms[2])]].concat();
        let path = place.path(&format!("{device}.csv"));
        std::fs::write(&path, format!("{header}\n{}\n", rows.join("\n"))).expect("a file");
        path
    };
    let (a, b) = (of("a", [4.0, 2.0, 1.0]), of("b", [1.0, 4.0, 0.5]));
    let found = json(&["search", "compare", "--tables", &a, "--tables", &b]);
    let prices = found["prices"].as_array().expect("a list");
    let more: Vec<f64> = prices.iter().filter_map(|price| price["more"].as_f64()).collect();
    // b's frontier (deep, small) on a: 4 / 2 and 1 / 1; a's (wide, small) on b: 4 / 1 and 1 / 1.
    assert_eq!(more, [0.5, 1.5], "{found}");
    assert_eq!((&prices[0]["from"], &prices[0]["to"]), (&"b".into(), &"a".into()));
    assert_eq!(found["devices"][0]["recalibrated"], serde_json::json!(["small", "wide"]));
    assert!(text(&["search", "compare", "--tables", &a, "--tables", &b]).contains("150.0 %"));
    let (code, error) = fails(&["search", "compare", "--tables", &place.path("none.csv")]);
    assert!(code != 0 && error.contains("none.csv"), "{error}");
    let (code, _) = fails(&["search", "compare"]);
    assert_eq!(code, 2);
}

#[test]
fn bounds_are_kept_or_said_to_be_too_low() {
    let place = Place::new();
    place.table();
    let all = pareto(&place, "free", &[]);
    let latencies: Vec<f64> =
        all["frontier"].as_array().expect("a list").iter().filter_map(|point| point["latency_ms"].as_f64()).collect();
    let (least, most) =
        (latencies.iter().copied().fold(f64::INFINITY, f64::min), latencies.iter().copied().fold(0.0, f64::max));
    let bound = (least + most) / 2.0;
    let bounded = pareto(&place, "bounded", &["--max-latency-ms", &bound.to_string()]);
    let points = bounded["frontier"].as_array().expect("a list");
    assert!(!points.is_empty() && points.iter().all(|point| point["latency_ms"].as_f64() <= Some(bound)));
    let (space, table, out) = (place.path("space.toml"), place.path("table.json"), place.path("none"));
    let args =
        ["search", "pareto", &space, "--table", &table, "--no-measure", "--out", &out, "--max-latency-ms", "1e-9"];
    let (code, error) = fails(&args);
    assert!(
        code == 2 && error.contains("no architecture within the bounds") && error.contains("the least"),
        "{code} {error}"
    );
}

#[test]
fn a_space_of_one_architecture_has_a_frontier_of_one() {
    let place = Place::new();
    let found = place.json(&[
        "search",
        "pareto",
        &place.path("one.toml"),
        "--models",
        "1",
        "--population",
        "4",
        "--iterations",
        "2",
        "--out",
        &place.path("one"),
    ]);
    let points = found["frontier"].as_array().expect("a list");
    assert_eq!((points.len(), points[0]["layers"].as_str()), (1, Some("s1 f32")));
    assert_eq!(found["evaluated"], 1);
    assert!(found["baselines"].as_array().map(Vec::len) == Some(16));
}
