//! Wrong input gets a short error that names place, value and what would be accepted.

use lathe_core::{MAX_TEXT, Space, Spec, notation};
use lathe_model::{REGISTRY, design};

fn notation_error(text: &str) -> String {
    notation::parse(text, &REGISTRY).map(|_| ()).expect_err(&text[..text.len().min(80)]).to_string()
}

fn model_error(toml: &str) -> String {
    let model = Spec::from_toml(toml, &REGISTRY).and_then(|spec| spec.model(&REGISTRY));
    model.map(|_| ()).expect_err(&toml[..toml.len().min(80)]).to_string()
}

fn check(error: &str, parts: &[&str]) {
    assert!(error.len() < 400 && !error.contains('\n'), "short, one line: {error}");
    for part in parts {
        assert!(error.contains(part), "`{part}` in: {error}");
    }
}

#[test]
fn notation_errors_name_position_found_and_expected() {
    for (text, parts) in [
        ("", &["position 1", "no block", "expected a block (s, f, m, -"][..]),
        ("sfq", &["position 3", "`q`", "expected a block"]),
        ("s f attn", &["position 5", "`attn`", "attention"]),
        ("(sf", &["position 1", "never closed", "`)xN`"]),
        ("s(f(m)x2", &["position 2", "never closed"]),
        ("sf)x2", &["position 3", "`)`"]),
        ("(sf)", &["position 5", "the end", "`xN`"]),
        ("(sf)x", &["position 6", "the end", "`xN`"]),
        ("(sf)x0", &["position 6", "0", "1 to 10000"]),
        ("()x3", &["position 1", "empty group"]),
        ("(sf)x1000000000000", &["position 6", "1000000000000", "1 to 10000"]),
        ("(sf)x5001", &["position 1", "10002 blocks", "at most 10000"]),
        ("((((f)x10000)x10000)x10000)x10000", &["100000000 blocks", "at most 10000"]),
        ("s0", &["position 2", "`0`", "1 to 65536 for heads of attention"]),
        ("s99999999999999999999", &["position 2", "`99999999999999999999`", "1 to 65536"]),
        ("s-4", &["position 3", "`4`", "expected a block"]),
        ("m8k", &["position 4", "the end", "top_k of moe"]),
        ("attention{heads=}", &["position 17", "`}`", "1 to 65536"]),
        ("attention{heads=-4}", &["position 17", "`-`", "1 to 65536"]),
        ("attention{head=4}", &["position 11", "`head`", "a knob of attention (heads, d_head, kv_heads)"]),
        ("attention{heads=4,heads=5}", &["position 19", "a second time"]),
        ("attention{heads 4}", &["position 17", "`=` after `heads`"]),
        ("attention{heads=4", &["position 18", "the end", "`,` or `}`"]),
        ("skip{x=1}", &["skip has no knobs"]),
        ("moe{renormalise=maybe}", &["`maybe`", "true or false"]),
        ("é", &["position 1", "`é`"]),
        ("sé", &["position 2", "`é`"]),
    ] {
        check(&notation_error(text), parts);
    }
}

#[test]
fn huge_notation_is_refused_quickly() {
    check(&notation_error(&"(".repeat(10_000)), &["position 65", "64 levels"]);
    check(&notation_error(&"x".repeat(MAX_TEXT)), &["position 1", "…"]);
    check(&notation_error(&"s".repeat(MAX_TEXT)), &["position 10001", "10001 blocks", "at most 10000"]);
    check(&notation_error(&"s".repeat(MAX_TEXT + 1)), &["layers is longer than 1048576 bytes"]);
    check(&notation_error(&format!("s{}", "9".repeat(100_000))), &["position 2", "…"]);
}

const GOOD: &str = "backbone='gpt2'\nlayers='(sf)x2'\nd_model=64\nvocab=256\n";

#[test]
fn model_file_errors_name_line_key_value_and_expected() {
    for (extra, parts) in [
        ("d_modle = 3", &["line 5", "unknown key `d_modle`", "did you mean `d_model`?"][..]),
        ("colour = 3", &["line 5", "unknown key `colour`", "known keys: backbone, layers"]),
        ("heads = 'many'", &["line 5, heads", "`'many'`", "whole number from 1 to 65536"]),
        ("heads = 2.5", &["line 5, heads", "`2.5`", "whole number"]),
        ("heads = -1", &["line 5, heads", "`-1`", "from 1 to 65536"]),
        ("heads = 0", &["line 5, heads", "`0`", "from 1 to 65536"]),
        ("inner = 1000000000000", &["line 5, inner", "`1000000000000`", "from 1 to 1048576"]),
        ("inner = 99999999999999999999999999", &["line 5", "inner"]),
        ("heads = 65", &["heads", "65", "at most d_model, which is 64"]),
        ("dropout = 1.0", &["line 5, dropout", "`1.0`", "from 0 to below 1"]),
        ("dropout = nan", &["line 5, dropout", "`nan`"]),
        ("norm = 'middle'", &["norm", "`middle`", "pre, post"]),
        ("activation = 'tanh'", &["activation", "`tanh`", "relu, gelu, gelu_tanh"]),
        ("tie_embeddings = 1", &["line 5, tie_embeddings", "`1`", "true or false"]),
        ("cutoffs = 3", &["line 5, cutoffs", "`3`", "a list"]),
        ("cutoffs = [3, 'x']", &["line 5, cutoffs[1]", "`'x'`"]),
        ("cutoffs = [20, 10]", &["cutoffs", "[20, 10]", "increase"]),
        ("cutoffs = [10, 20, 30]\ndiv_val = 16", &["div_val", "d_embed 64 / div_val 16^3", "at least 1"]),
        ("max_len = 10\ntgt_len = 11", &["tgt_len", "11", "at most max_len, which is 10"]),
        ("d_model = 65", &["line 5", "duplicate key"]),
        ("= 3", &["line 5, column 1"]),
        ("x = [[[[", &["line 5"]),
    ] {
        check(&model_error(&format!("{GOOD}{extra}\n")), parts);
    }
    let unused = GOOD.replace("(sf)x2", "s2 f");
    check(&model_error(&format!("{unused}heads = 65")), &["heads: found 65", "at most d_model, which is 64"]);
    check(&model_error(&GOOD.replace("(sf)x2", "fs65")), &["block 2 (s65), heads", "at most d_model, which is 64"]);
    check(&model_error(&GOOD.replace("(sf)x2", "sq")), &["layers, position 2", "`q`"]);
    let long = "x".repeat(10_000);
    for key in ["backbone", "norm", "activation"] {
        let lines = GOOD.lines().filter(|line| !line.starts_with(key));
        let rest: String = lines.map(|line| format!("{line}\n")).collect();
        check(&model_error(&format!("{key} = '{long}'\n{rest}")), &[key, "…"]);
    }
    check(&model_error("layers='s'\nd_model=1\nvocab=1"), &["`backbone` is missing", "transformer_xl"]);
    check(&model_error("backbone='gpt2'\nd_model=1\nvocab=1"), &["`layers` is missing", "(sf)x16"]);
    check(
        &model_error("backbone='bart'\nlayers='s'\nd_model=1\nvocab=1"),
        &["backbone", "`bart`", "transformer_xl, gpt2, opt"],
    );
    check(&model_error(&GOOD.replace("(sf)x2", "m2k3")), &["block 1 (m2k3), top_k", "3", "experts, which is 2"]);
    check(&model_error(&GOOD.replace("(sf)x2", "s64d65536")), &["heads of width 65536", "at most 1048576"]);
}

#[test]
fn garbage_files_are_refused_quickly() {
    for garbage in
        ["\u{0}".repeat(MAX_TEXT), "[".repeat(MAX_TEXT), "a=".repeat(MAX_TEXT / 2), "\u{fffd}\n".repeat(200_000)]
    {
        check(&model_error(&garbage), &["line 1"]);
    }
    check(&model_error(&format!("x = {}", "[".repeat(10_000))), &["line 1"]);
    check(&model_error(&format!("x{} = {{ {} }}", ".y".repeat(10_000), "z = {".repeat(10_000))), &["line 1"]);
    check(&model_error(&"x".repeat(MAX_TEXT + 1)), &["the model file is longer than 1048576 bytes"]);
}

const SPACE: &str = "[baseline]\nbackbone='gpt2'\nlayers='(sf)x2'\nd_model=64\nvocab=256\n";

fn space_error(text: &str) -> String {
    Space::from_toml(text, &REGISTRY).map(|_| ()).expect_err(&text[..text.len().min(400)]).to_string()
}

#[test]
fn space_file_errors_name_place_value_and_expected() {
    let slot = "[[slots]]\noptions=['s','f']\n";
    for (text, parts) in [
        (slot.to_string(), &["`baseline` is missing", "[baseline]"][..]),
        (SPACE.into(), &["`slots` is missing", "[[slots]]"]),
        (format!("baseline=3\n{slot}"), &["line 1, baseline", "`3`", "a table"]),
        (format!("{}{slot}", SPACE.replace("vocab=256", "norm='x'")), &["baseline: `vocab` is missing"]),
        (format!("{SPACE}norm='x'\n{slot}"), &["baseline, norm", "`x`", "pre, post"]),
        (format!("{}{slot}", SPACE.replace("(sf)x2", "sq")), &["baseline, layers, position 2", "`q`"]),
        (format!("slots=[]\n{SPACE}"), &["line 1, slots", "1 to 1000"]),
        (format!("{SPACE}{slot}repat = 3"), &["line 8", "unknown key `repat`", "`repeat`"]),
        (format!("{SPACE}{slot}[[slots]]\nrepeat=3"), &["line 8, slots[1]: `options` is missing"]),
        (format!("{SPACE}[[slots]]\noptions=[]"), &["line 7, slots[0].options", "at least one option"]),
        (format!("{SPACE}[[slots]]\noptions=['s','q']"), &["line 7, slots[0].options[1], position 1", "`q`"]),
        (format!("{SPACE}{slot}repeat = {{min=3,max=2}}"), &["line 8, slots[0].repeat", "min at most max"]),
        (format!("{SPACE}{slot}repeat = {{min=3}}"), &["line 8, slots[0].repeat: `max` is missing"]),
        (format!("{SPACE}{slot}repeat = 10001"), &["`10001`", "from 0 to 10000"]),
        (format!("{SPACE}[[slots]]\noptions=['ss']\nrepeat = 10000"), &["up to 20000 blocks", "at most 10000"]),
        (format!("{SPACE}{slot}repeat = []"), &["at least one value"]),
        (format!("{SPACE}{slot}repeat = [1, 1]"), &["each once"]),
        (format!("{SPACE}{slot}repeat = [0, 1]\n{slot}repeat = 0"), &["line 6, slots", "repeat 0 everywhere"]),
        (format!("{SPACE}{slot}knobs = {{ colour = [1] }}"), &["slots[0].knobs.colour", "that an option leaves open"]),
        (format!("{SPACE}{slot}knobs = {{ heads = [0] }}"), &["slots[0].knobs.heads[0]", "`0`", "from 1 to 65536"]),
        (format!("{SPACE}{slot}knobs = {{ heads = [true] }}"), &["`true`", "a whole number"]),
        (format!("{SPACE}[choices]\nd_modl = [3]\n{slot}"), &["`d_modl`", "did you mean `d_model`?"]),
        (format!("{SPACE}[choices]\nlayers = [3]\n{slot}"), &["unknown key `layers`"]),
        (format!("{SPACE}[choices]\nmem_len = [3, 4]\n{slot}"), &["line 7, choices.mem_len", "backbone gpt2"]),
        (
            format!("{SPACE}[choices]\nd_model = {{min=1,max=65536}}\nd_embed = {{min=1,max=65536}}\n{slot}"),
            &["choices", "too many"],
        ),
        (
            format!("{SPACE}[[slots]]\noptions=['ssss']\nknobs = {{ heads = {{min=1,max=60}} }}"),
            &["line 7, slots[0].options[0]", "at most 100000 blocks"],
        ),
        (
            format!("{SPACE}[choices]\nd_model = [1]\n[[slots]]\noptions=['f', 's2']"),
            &["line 9, slots[0].options[1] with d_model 1, heads", "2", "at most d_model, which is 1"],
        ),
        (
            format!("{SPACE}[choices]\nmax_len = [100, 200]\n{slot}").replace("vocab", "tgt_len=150\nvocab"),
            &["choices with max_len 100, tgt_len", "150", "at most max_len"],
        ),
        (format!("where=['inner > 3 *']\n{SPACE}{slot}"), &["line 1, where[0]", "a condition such as"]),
        (format!("where=['inner + >= 3']\n{SPACE}{slot}"), &["where[0]", "a condition such as"]),
        (format!("where=['1e308 * inner >= 3']\n{SPACE}{slot}"), &["where[0]", "numbers that can be computed with"]),
        (format!("where=['iner > 3']\n{SPACE}{slot}"), &["`iner`", "`inner`?"]),
        (format!("where=['d_model > 64']\n{SPACE}{slot}"), &["no architecture"]),
        (format!("where=3\n{SPACE}{slot}"), &["where", "`3`", "a list of conditions"]),
        (format!("where=['heads > 0', 'experts > 1']\n{SPACE}{slot}"), &["where[1]", "`'experts > 1'`", "a value"]),
        (format!("where=['mem_len > 1']\n{SPACE}{slot}"), &["where[0]", "a value"]),
    ] {
        check(&space_error(&text), parts);
    }
}

/// Options that are the same once defaults are written out, if only for some of the choices.
#[test]
fn equal_options_are_refused() {
    for (choices, options, parts) in [
        ("", "['s','s']", &["line 8, slots[0].options[1]", "`s`", "options that differ"][..]),
        ("", "['f','s1','s']", &["slots[0].options[2]", "`s`", "the same as `s1`"]),
        ("", "['s','s1d64']", &["`s1d64`", "the same as `s`"]),
        ("", "['m','m8k2']", &["`m8k2`", "the same as `m`"]),
        ("", "['m','moe{renormalise=false}']", &["the same as `m`"]),
        ("[choices]\ninner=[7,8]", "['f','f8']", &["slots[0].options[1] with inner 8", "the same as `f`"]),
    ] {
        check(&space_error(&format!("{SPACE}{choices}\n[[slots]]\noptions={options}")), parts);
    }
}

/// Files of at most 1 MB that ask for much: refused, or read, in bounded steps.
#[test]
fn huge_spaces_are_refused_quickly() {
    let slot = |options: &str, rest: &str| format!("[[slots]]\noptions=[{options}]\n{rest}\n");
    let wide = SPACE.replace("d_model=64", "d_model=65536");
    let many = slot("'s'", "knobs = { heads = { min=1, max=30000 }, d_head = [1,2,3] }");
    let repeated = slot("'s'", "repeat = { min=1, max=10000 }\nknobs = { heads = { min=1, max=1000 } }");
    let widths = "[choices]\nd_model = { min=500, max=1500 }\n";
    let conditions = |n: usize, condition: &str| format!("where=[{}]\n", format!("'{condition}',").repeat(n));
    let f = slot("'f'", "");
    let stack: String = (1..=500).map(|i| format!("s{i} f{i} ")).collect();
    for (text, parts) in [
        (format!("{SPACE}{}", "[[slots]]\n".repeat(100_000)), &["line 6, slots", "100000", "1 to 1000"][..]),
        (format!("{wide}{}", many.repeat(300)), &["slots[1].options[0]", "at most 100000 blocks"]),
        (format!("{SPACE}{}", slot(&"'(s)x10000',".repeat(80_000), "")), &["options[10]", "at most 100000 blocks"]),
        (format!("{}{SPACE}{f}", conditions(2000, "inner > 1")), &["where", "2000", "at most 1000"]),
        (format!("{}{wide}[choices]\nd_embed={{min=1,max=99}}\n{many}", conditions(1000, "heads > 0")), &["too many"]),
        (format!("where=['heads <= d_model']\n{SPACE}{widths}{repeated}"), &["too many"]),
        (format!("where=['heads + inner != 7000']\n{wide}{widths}{}", slot(&format!("'{stack}'"), "")), &["too many"]),
        (format!("{wide}[choices]\nmax_len={{min=192,max=100000}}\n{}", f.repeat(500)), &["too many"]),
    ] {
        check(&space_error(&text), parts);
    }
    let repeated = repeated.replace("max=1000 }", "max=9 }");
    let space = Space::from_toml(&format!("{SPACE}{widths}{repeated}"), &REGISTRY).unwrap();
    assert_eq!(space.size().to_string().len(), 9546, "1001 times the sum of the powers of 9 up to the 10,000th");
    let long = format!("where=['{}heads > 0']\n{wide}{many}", "heads + ".repeat(100_000));
    assert!(Space::from_toml(&long, &REGISTRY).is_ok(), "each name of a condition counts once");
}

#[test]
fn design_errors_name_what_was_given() {
    let error = |result: lathe_core::Result<String>| result.unwrap_err().to_string();
    let scaled =
        |backbone: &str, layers| design::scaled(backbone, layers, false, &REGISTRY).map(|scaled| scaled.layers);
    check(&error(scaled("gpt2", 1_000_000)), &["layers: found 1000000; expected 1 to 5000"]);
    check(&error(scaled("gpt2", 0)), &["layers: found 0"]);
    check(&error(scaled(&"x".repeat(10_000), 1)), &["backbone", "…", "transformer_xl, gpt2"]);
    check(&error(design::par(10_001, 5.0, None)), &["blocks: found 10001; expected 1 to 10000"]);
}

#[test]
fn a_window_of_nothing_is_refused() {
    let toml = "backbone='transformer_xl'\nlayers='s'\nd_model=8\nvocab=9\nsame_length=true\nmem_len=0";
    check(&model_error(toml), &["same_length", "a mem_len of at least 1"]);
}
