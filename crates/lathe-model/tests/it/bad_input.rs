//! Wrong input gets a short error that names place, value and what would be accepted.

use lathe_core::{MAX_TEXT, Space, Spec, notation};
use lathe_model::REGISTRY;

fn notation_error(text: &str) -> String {
    notation::parse(text, &REGISTRY).map(|_| ()).expect_err(&text[..text.len().min(80)]).to_string()
}

fn model_error(toml: &str) -> String {
    let model = Spec::from_toml(toml).and_then(|spec| spec.model(&REGISTRY));
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
        ("attention{head=4}", &["position 11", "`head`", "a knob of attention (heads, d_head)"]),
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
    check(&notation_error(&"s".repeat(MAX_TEXT + 1)), &["layers has 1048577 bytes", "1048576"]);
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
        ("heads = 65", &["block 1 (s), heads", "65", "at most d_model, which is 64"]),
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
    check(&model_error(&"x".repeat(MAX_TEXT + 1)), &["the model file has 1048577 bytes"]);
}

const SPACE: &str = "[baseline]\nbackbone='gpt2'\nlayers='(sf)x2'\nd_model=64\nvocab=256\n";

#[test]
fn space_file_errors_name_place_value_and_expected() {
    let slot = "[[slots]]\noptions=['s','f']\n";
    for (text, parts) in [
        (slot.to_string(), &["`baseline` is missing", "[baseline]"][..]),
        (SPACE.into(), &["`slots` is missing", "[[slots]]"]),
        (format!("slots=[]\n{SPACE}"), &["slots", "at least one"]),
        (format!("{SPACE}{slot}repat = 3"), &["line 8", "unknown key `repat`", "`repeat`"]),
        (format!("{SPACE}[[slots]]\nrepeat=3"), &["`options` is missing"]),
        (format!("{SPACE}[[slots]]\noptions=[]"), &["at least one option"]),
        (format!("{SPACE}[[slots]]\noptions=['s','q']"), &["position 1", "`q`"]),
        (format!("{SPACE}[[slots]]\noptions=['s','s']"), &["options that differ"]),
        (format!("{SPACE}{slot}repeat = {{min=3,max=2}}"), &["min at most max"]),
        (format!("{SPACE}{slot}repeat = {{min=3}}"), &["`max` is missing"]),
        (format!("{SPACE}{slot}repeat = 10001"), &["`10001`", "from 0 to 10000"]),
        (format!("{SPACE}[[slots]]\noptions=['ss']\nrepeat = 10000"), &["up to 20000 blocks", "at most 10000"]),
        (format!("{SPACE}{slot}repeat = []"), &["at least one value"]),
        (format!("{SPACE}{slot}repeat = [1, 1]"), &["each once"]),
        (format!("{SPACE}{slot}knobs = {{ colour = [1] }}"), &["colour", "a knob that an option leaves open"]),
        (format!("{SPACE}{slot}knobs = {{ heads = [0] }}"), &["`0`", "from 1 to 65536"]),
        (format!("{SPACE}[choices]\nd_modl = [3]\n{slot}"), &["`d_modl`", "did you mean `d_model`?"]),
        (format!("{SPACE}[choices]\nlayers = [3]\n{slot}"), &["unknown key `layers`"]),
        (
            format!("{SPACE}[choices]\nd_model = {{min=1,max=65536}}\nd_embed = {{min=1,max=65536}}\n{slot}"),
            &["choices", "too many"],
        ),
        (
            format!("{SPACE}[[slots]]\noptions=['ssss']\nknobs = {{ heads = {{min=1,max=60}} }}"),
            &["at most 100000 combinations"],
        ),
        (
            format!("{SPACE}[choices]\nd_model = [1]\n[[slots]]\noptions=['s2']"),
            &["heads", "2", "at most d_model, which is 1"],
        ),
        (format!("where=['inner > 3 *']\n{SPACE}{slot}"), &["where[0]", "a condition such as"]),
        (format!("where=['iner > 3']\n{SPACE}{slot}"), &["`iner`", "`inner`?"]),
        (format!("where=['d_model > 64']\n{SPACE}{slot}"), &["no architecture"]),
        (format!("where=3\n{SPACE}{slot}"), &["where", "`3`", "a list of conditions"]),
    ] {
        let error = Space::from_toml(&text, &REGISTRY).map(|_| ()).expect_err(&text).to_string();
        check(&error, parts);
    }
}
