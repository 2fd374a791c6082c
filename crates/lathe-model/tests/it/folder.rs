//! Model folders: what is saved loads again, folders of `transformers` load, and wrong ones say what is wrong.

use crate::parity::{DECODERS, Fixture};
use lathe_model::folder::{self, FolderError};
use lathe_model::{Network, REGISTRY};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use tempfile::TempDir;

/// Tensors by name: type, shape, bytes.
type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// Writes a folder as `transformers` does.
fn folder(config: &Value, tensors: &Tensors) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).expect("bytes that fill the shape"))
    });
    let bytes = safetensors::serialize(views, None).unwrap();
    std::fs::write(dir.path().join("model.safetensors"), bytes).unwrap();
    dir
}

fn floats(shape: &[usize], values: &[f32]) -> (Dtype, Vec<usize>, Vec<u8>) {
    (Dtype::F32, shape.to_vec(), values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

/// The weights of a fixture.
fn weights(fixture: &Fixture) -> Tensors {
    let weights = fixture.floats.iter().filter_map(|(name, data)| Some((name.strip_prefix("weight.")?, data)));
    weights.map(|(name, (shape, values))| (name.to_string(), floats(shape, values))).collect()
}

/// The configuration that the oracles give `transformers` for a model file.
fn config(toml: &str) -> Value {
    let spec = lathe_core::Spec::from_toml(toml, &REGISTRY).unwrap();
    let get = |key: &str| -> Value {
        let text = spec.get(key).unwrap_or_else(|| panic!("{key} in {toml}")).to_string();
        serde_json::from_str(&text).unwrap()
    };
    let layers: usize = get("layers").as_str().unwrap().trim_start_matches("(sf)x").parse().unwrap();
    if get("backbone") == "gpt2" {
        let activation = match get("activation").as_str().unwrap() {
            "gelu_tanh" => json!("gelu_new"),
            other => json!(other),
        };
        return json!({
            "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": layers, "n_embd": get("d_model"),
            "n_head": get("heads"), "n_inner": get("inner"), "n_positions": get("max_len"), "vocab_size": get("vocab"),
            "activation_function": activation, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0,
            "layer_norm_epsilon": 1e-05, "scale_attn_weights": true, "reorder_and_upcast_attn": false,
            "tie_word_embeddings": get("tie_embeddings"),
        });
    }
    let cutoffs = get("cutoffs");
    let shared = vec![get("tie_projs"); cutoffs.as_array().unwrap().len()];
    let tie_projs = [vec![json!(false)], shared].concat();
    json!({
        "model_type": "transfo-xl", "n_layer": layers, "d_model": get("d_model"), "d_embed": get("d_embed"),
        "n_head": get("heads"), "d_head": get("d_head"), "d_inner": get("inner"), "vocab_size": get("vocab"),
        "cutoffs": cutoffs, "div_val": get("div_val"), "pre_lnorm": get("norm") == "pre", "adaptive": true,
        "tgt_len": get("tgt_len"), "mem_len": get("mem_len"), "same_length": get("same_length"), "untie_r": true,
        "clamp_len": spec.get("clamp_len").map_or(json!(-1), |_| get("clamp_len")), "dropout": 0.0, "dropatt": 0.0,
        "tie_projs": tie_projs, "tie_word_embeddings": get("tie_embeddings"),
    })
}

fn assert_weights(network: &Network, fixture: &Fixture) {
    for param in network.params().iter() {
        assert_eq!(param.data, fixture.floats[&format!("weight.{}", param.name)].1, "{}", param.name);
    }
}

/// A folder of `transformers` gives the model that the oracle computed, with its weights.
#[test]
fn folders_of_transformers_load() {
    // It has no mixture of experts nor low ranks for these models.
    for name in DECODERS.iter().filter(|name| name.starts_with("gpt2") || name.starts_with("xl")) {
        if name.contains("moe") || name.contains("low_rank") {
            continue;
        }
        let fixture = Fixture::read(name);
        let dir = folder(&config(&fixture.toml), &weights(&fixture));
        let network = folder::load(dir.path(), &REGISTRY).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(network.model, crate::model(&fixture.toml), "{name}");
        assert_weights(&network, &fixture);
    }
}

/// Names without `transformer.`, constants, and tied weights that stand there twice.
#[test]
fn what_other_versions_save_loads() {
    let fixture = Fixture::read("gpt2_tanh");
    let mut tensors: Tensors = weights(&fixture)
        .into_iter()
        .map(|(name, tensor)| (name.trim_start_matches("transformer.").to_string(), tensor))
        .collect();
    tensors.insert("h.0.attn.bias".into(), (Dtype::BOOL, vec![1, 1, 2, 2], vec![1, 0, 1, 1]));
    tensors.insert("h.1.attn.masked_bias".into(), floats(&[], &[f32::NEG_INFINITY]));
    tensors.insert("lm_head.weight".into(), tensors["wte.weight"].clone());
    let dir = folder(&config(&fixture.toml), &tensors);
    assert_weights(&folder::load(dir.path(), &REGISTRY).unwrap(), &fixture);

    let fixture = Fixture::read("xl_adaptive");
    let mut tensors = weights(&fixture);
    tensors.insert("transformer.pos_emb.inv_freq".into(), floats(&[8], &[1.0; 8]));
    for i in 0..3 {
        let table = tensors[&format!("transformer.word_emb.emb_layers.{i}.weight")].clone();
        tensors.insert(format!("crit.out_layers.{i}.weight"), table);
    }
    tensors.insert("crit.out_projs.1".into(), tensors["transformer.word_emb.emb_projs.1"].clone());
    let mut config = config(&fixture.toml);
    config["proj_share_all_but_first"] = json!(true);
    config["tie_weight"] = json!(true);
    for key in ["tie_projs", "tie_word_embeddings", "tgt_len"] {
        config.as_object_mut().unwrap().remove(key);
    }
    assert_weights(&folder::load(folder(&config, &tensors).path(), &REGISTRY).unwrap(), &fixture);
}

#[test]
fn missing_keys_have_the_defaults_of_transformers() {
    let model = |config: Value| folder::load_model(folder(&config, &Tensors::new()).path(), &REGISTRY).unwrap();
    let total = |config: Value| {
        let model = model(config);
        lathe_model::count(&model, &lathe_core::Setting::of(&model)).total_params()
    };
    assert_eq!(total(json!({"model_type": "gpt2"})), 124_439_808);
    assert_eq!(total(json!({"model_type": "gpt2", "n_inner": null, "n_ctx": 1024})), 124_439_808);
    let gpt2 = model(json!({"model_type": "gpt2"}));
    assert_eq!((gpt2.frame.dropout, gpt2.frame.attn_dropout), (0.1, 0.1));
    // transfo-xl-wt103
    let xl = model(json!({"model_type": "transfo-xl"}));
    let written = "backbone='transformer_xl'\nlayers='(sf)x18'\nd_model=1024\nvocab=267735\nheads=16\nd_head=64\n\
                   inner=4096\ndiv_val=4\ncutoffs=[20000,40000,200000]\nmem_len=1600\nclamp_len=1000\n\
                   same_length=true\ndropout=0.1";
    assert_eq!(xl, crate::model(written));
    assert_eq!(model(json!({"model_type": "transfo-xl", "clamp_len": 0})).frame.clamp_len, None);
}

/// What is saved here loads here, and has the model type under which `transformers` loads it, if it can.
#[test]
fn saved_folders_load_again() {
    let gpt2 = "backbone='gpt2'\nd_model=12\nvocab=17\nheads=3\nmax_len=9\n";
    let opt = "backbone='opt'\nd_model=12\nvocab=17\nheads=3\nmax_len=9\n";
    let xl = "backbone='transformer_xl'\nd_model=12\nvocab=17\nheads=3\ntgt_len=4\nmem_len=5\n";
    for (start, rest, model_type) in [
        (gpt2, "layers='(sf)x2'\ninner=20\ndropout=0.1", "gpt2"),
        (gpt2, "layers='(s2 f8)x2'\ntie_embeddings=false\nactivation='silu'", "gpt2"),
        (gpt2, "layers='(s f)x2 s f7'", "lathe"),
        (gpt2, "layers='(fs)x2'", "lathe"),
        (gpt2, "layers='(sf)x2'\nnorm='post'", "lathe"),
        (gpt2, "layers='(sf)x2'\nd_head=5", "lathe"),
        (gpt2, "layers='(sf)x2'\nactivation='swiglu'", "lathe"),
        (gpt2, "layers='(sf)x2'\ncutoffs=[5]\ndiv_val=2", "lathe"),
        (gpt2, "layers='sff (s1d5 m3k2i6)x2 - moe{experts=2,top_k=1,renormalise=true}'\nmoe_dropout=0.2", "lathe"),
        (xl, "layers='(sf)x2'", "transfo-xl"),
        (xl, "layers='(sf)x2'\nd_head=5\nnorm='pre'\nsame_length=true", "transfo-xl"),
        (xl, "layers='(sf)x2'\ncutoffs=[5,9]\ndiv_val=2\nclamp_len=3", "transfo-xl"),
        (xl, "layers='(sf)x2'\ncutoffs=[5,9]\nd_embed=8\ntie_projs=false\ntie_embeddings=false", "transfo-xl"),
        (xl, "layers='(sf)x2'\nactivation='gelu'", "lathe"),
        (xl, "layers='(sf)x2'\nnorm='pre'\nfinal_norm=true", "lathe"),
        (xl, "layers='(sff)x2 m'", "lathe"),
        (opt, "layers='(sf)x2'", "lathe"),
        (opt, "layers='(sf)x2'\nreference=true\ndropout=0.2", "opt"),
        (opt, "layers='(s2 f8)x2'\nreference=true\nnorm='post'\ntie_embeddings=false\nactivation='gelu'", "opt"),
        (opt, "layers='(sf)x2'\nreference=true\nd_embed=6\nnorm='post'", "opt"),
        (opt, "layers='(sf)x2 f'\nreference=true", "lathe"),
        (opt, "layers='(sf)x2'\nreference=true\nactivation='swiglu'", "lathe"),
    ] {
        let network = Network::new(crate::model(&format!("{start}{rest}")), 1).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/model");
        folder::save(&network, &path).unwrap();
        folder::save(&network, &path).expect("it may be there already");
        let again = folder::load(&path, &REGISTRY).unwrap_or_else(|error| panic!("{rest}: {error}"));
        assert_eq!(again.model, network.model, "{rest}");
        assert_eq!(folder::load_model(&path, &REGISTRY).unwrap(), network.model, "{rest}");
        for (a, b) in again.params().iter().zip(network.params().iter()) {
            assert_eq!((&a.name, &a.shape, &a.data), (&b.name, &b.shape, &b.data), "{rest}");
        }
        let files = std::fs::read_dir(&path).unwrap().count();
        assert_eq!(files, 2, "nothing is left beside them");

        // The keys of `transformers` alone say the same.
        let mut config: Value = serde_json::from_slice(&std::fs::read(path.join("config.json")).unwrap()).unwrap();
        assert_eq!(config["model_type"], model_type, "{rest}");
        if model_type != "lathe" {
            config.as_object_mut().unwrap().remove("lathe");
            std::fs::write(path.join("config.json"), config.to_string()).unwrap();
            let theirs = folder::load(&path, &REGISTRY).unwrap_or_else(|error| panic!("{rest}: {error}"));
            let count =
                |network: &Network| lathe_model::count(&network.model, &lathe_core::Setting::of(&network.model));
            assert_eq!(count(&theirs), count(&network), "{rest}");
        }
    }
}

/// The error of loading a folder.
fn error(dir: &Path) -> FolderError {
    match folder::load(dir, &REGISTRY) {
        Ok(_) => panic!("a wrong folder loads"),
        Err(error) => error,
    }
}

fn assert_error(dir: &Path, parts: &[&str], is_config: bool) {
    let error = error(dir);
    let text = error.to_string();
    let file = if is_config { "config.json" } else { "model.safetensors" };
    for part in [file].iter().chain(parts) {
        assert!(text.contains(part), "`{part}` in: {text}");
    }
    assert!(text.len() < 600 && !text.contains('\n'), "{text}");
    assert_eq!(error.is_config(), is_config, "{text}");
}

#[test]
fn wrong_tensors_are_named() {
    let fixture = Fixture::read("gpt2_relu");
    let with = |change: &dyn Fn(&mut Tensors), parts: &[&str]| {
        let mut tensors = weights(&fixture);
        change(&mut tensors);
        assert_error(folder(&config(&fixture.toml), &tensors).path(), parts, false);
    };
    let wpe = "transformer.wpe.weight"; // [8, 8]
    with(&|tensors| drop(tensors.remove(wpe)), &["tensor `transformer.wpe.weight` is missing; expected F32 [8, 8]"]);
    with(&|tensors| tensors.clear(), &["is missing"]);
    with(
        &|tensors| drop(tensors.insert("transformer.h.1.ln_1.weight".into(), floats(&[2], &[1.0; 2]))),
        &["found tensor `transformer.h.1.ln_1.weight`, F32 [2]"],
    );
    with(&|tensors| drop(tensors.insert("x\n".repeat(1000), floats(&[1], &[1.0]))), &["`x\\nx"]);
    with(
        &|tensors| drop(tensors.insert(wpe.into(), floats(&[4, 16], &[0.0; 64]))),
        &["tensor `transformer.wpe.weight` has the shape [4, 16]; expected [8, 8]"],
    );
    with(
        &|tensors| drop(tensors.insert(wpe.into(), (Dtype::I16, vec![8, 8], vec![0; 128]))),
        &["tensor `transformer.wpe.weight` is I16; expected F32, BF16, F16"],
    );
    for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut values = [0.5; 64];
        values[37] = wrong;
        with(
            &|tensors| drop(tensors.insert(wpe.into(), floats(&[8, 8], &values))),
            &["tensor `transformer.wpe.weight`, index 37", &format!("found {wrong}")],
        );
    }
    // An output of its own where the model says it is the embedding, and the other way round.
    let mut untied = config(&fixture.toml);
    untied["tie_word_embeddings"] = json!(false);
    assert_error(folder(&untied, &weights(&fixture)).path(), &["`lm_head.weight` is missing; expected F32"], false);
}

#[test]
fn files_that_are_no_safetensors_files_are_refused() {
    let fixture = Fixture::read("gpt2_relu");
    let dir = folder(&config(&fixture.toml), &weights(&fixture));
    let path = dir.path().join("model.safetensors");
    let whole = std::fs::read(&path).unwrap();
    SafeTensors::deserialize(&whole).unwrap();
    let header = |size: u64, text: &[u8]| [&size.to_le_bytes()[..], text].concat();
    let tensor = |shape: &str, end: &str| {
        let text = format!(r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":[0,{end}]}}}}"#);
        header(text.len() as u64, text.as_bytes())
    };
    for (bytes, part) in [
        (whole[..whole.len() - 5].to_vec(), "the file may be cut off"),
        (whole[..100].to_vec(), "a header of"),
        (whole[..7].to_vec(), "7 bytes"),
        (Vec::new(), "0 bytes"),
        ([&whole[..], b"more"].concat(), "as its header says"),
        (header(1 << 60, &whole), "a header of 1152921504606846976 bytes; expected at most"),
        (header(u64::MAX, &[]), "a header of 18446744073709551615 bytes; expected at most 0"),
        (header(5, b"{{{{{{{{{"), "a wrong header"),
        (header(4, &[0xff; 9]), "a wrong header"),
        (header(9000, &vec![b'['; 9000]), "a wrong header"),
        (tensor("[72057594037927936]", "288230376151711744"), "0 bytes of values; expected 288230376151711744"),
        (tensor("[4294967296,4294967296,4294967296]", "8"), "overflow"),
        (tensor("[2]", "4"), "invalid shape"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        assert_error(dir.path(), &[part], false);
    }
    // Every single byte of the header may be wrong: an error, or a header that says the same.
    let end = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    for i in 0..end {
        let mut bytes = whole.clone();
        bytes[i] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        if let Err(error) = folder::load(dir.path(), &REGISTRY) {
            assert!(!error.is_config() && error.to_string().len() < 600, "{error}");
        }
    }
    std::fs::remove_file(&path).unwrap();
    assert_error(dir.path(), &["is missing; expected the weights"], false);
    std::fs::write(dir.path().join("pytorch_model.bin"), "x").unwrap();
    assert_error(dir.path(), &["only safetensors is read", "save_pretrained(folder, safe_serialization=True)"], false);
    std::fs::create_dir(&path).unwrap();
    assert!(!error(dir.path()).is_config());
}

/// Weights in several files, as `transformers` saves large models.
#[test]
fn weights_in_several_files() {
    let fixture = Fixture::read("gpt2_relu");
    let all = weights(&fixture);
    let whole = folder(&config(&fixture.toml), &all);
    let expected = folder::load(whole.path(), &REGISTRY).unwrap();

    let names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    let dir = folder(&config(&fixture.toml), &Tensors::new());
    std::fs::remove_file(dir.path().join("model.safetensors")).unwrap();
    for (part, name) in names.iter().enumerate() {
        let views =
            all.iter().enumerate().filter(|(i, _)| i % 2 == part).map(|(_, (tensor, (dtype, shape, bytes)))| {
                (tensor, TensorView::new(*dtype, shape.clone(), bytes).expect("bytes that fill the shape"))
            });
        std::fs::write(dir.path().join(name), safetensors::serialize(views, None).unwrap()).unwrap();
    }
    let index = |files: &[&str]| {
        let map: BTreeMap<&String, &str> = all.keys().zip(files.iter().copied().cycle()).collect();
        let text = json!({"metadata": {"total_size": 1}, "weight_map": map}).to_string();
        std::fs::write(dir.path().join("model.safetensors.index.json"), text).unwrap();
    };
    index(&names);
    let network = folder::load(dir.path(), &REGISTRY).unwrap();
    for (param, expected) in network.params().iter().zip(expected.params().iter()) {
        assert_eq!(param.data, expected.data, "{}", param.name);
    }

    index(&names[..1]);
    assert_error(
        dir.path(),
        &["model.safetensors.index.json: tensor `transformer.", "is missing; expected F32 ["],
        false,
    );
    index(&["model-00003-of-00003.safetensors"]);
    assert_error(dir.path(), &["model-00003-of-00003.safetensors is missing", "names it"], false);
    index(&["../model.safetensors"]);
    assert_error(dir.path(), &["found the file name", "expected names of safetensors files beside it"], false);
    for text in ["", "{}", "[]", "{\"weight_map\": {}}"] {
        std::fs::write(dir.path().join("model.safetensors.index.json"), text).unwrap();
        assert_error(dir.path(), &["model.safetensors.index.json: found"], false);
    }
}

/// A small file with a configuration that claims terabytes: an error at once, and nothing is allocated for it.
#[test]
fn claims_of_the_configuration_are_checked_against_the_file() {
    let fixture = Fixture::read("gpt2_relu");
    for (key, value) in [("n_embd", 65536), ("n_layer", 5000), ("n_positions", 1 << 24), ("vocab_size", 1 << 28)] {
        let mut config = config(&fixture.toml);
        config[key] = json!(value);
        assert_error(folder(&config, &weights(&fixture)).path(), &["tensor `transformer.", "expected"], false);
    }
    let lathe =
        json!({"backbone": "transformer_xl", "layers": "(m4096k1i1048576)x10000", "d_model": 65536, "vocab": 9});
    assert_error(folder(&json!({"lathe": lathe}), &weights(&fixture)).path(), &["is missing; expected F32"], false);
}

#[test]
fn wrong_configurations_are_named() {
    let gpt2 = |key: &str, value: Value| {
        let mut config = json!({"model_type": "gpt2"});
        config[key] = value;
        config.to_string()
    };
    let xl = |key: &str, value: Value| {
        let mut config = json!({"model_type": "transfo-xl"});
        config[key] = value;
        config.to_string()
    };
    let own = |value: Value| json!({"model_type": "gpt2", "lathe": value}).to_string();
    for (text, parts) in [
        ("{\"model_type\":\n gpt2}".to_string(), &["line 2, column 2", "not JSON"][..]),
        (String::new(), &["not JSON"]),
        ("[".repeat(100_000), &["not JSON"]),
        ("\u{0}".repeat(2 << 20), &["longer than 1048576 bytes"]),
        ("[1]".into(), &["found `[1]`; expected an object"]),
        ("{}".into(), &["model_type: found nothing; expected transfo-xl, gpt2"]),
        (json!({"model_type": "t5"}).to_string(), &["model_type: found `\"t5\"`"]),
        (gpt2("n_embd", json!("64")), &["n_embd: found", "expected a whole number from 1 to 65536"]),
        (gpt2("n_embd", json!(-1)), &["n_embd: found `-1`"]),
        (gpt2("n_embd", json!(1e300)), &["n_embd: found `1e+300`"]),
        (gpt2("n_embd", json!(null)), &["n_embd: found `null`"]),
        (gpt2("n_head", json!(7)), &["n_head: found 7; expected a divisor of n_embd, which is 768"]),
        (gpt2("n_layer", json!(0)), &["n_layer: found `0`; expected a whole number from 1 to 5000"]),
        (gpt2("n_layer", json!(1_000_000_000_000_u64)), &["n_layer: found `1000000000000`"]),
        (gpt2("n_inner", json!("wide")), &["n_inner: found"]),
        (gpt2("activation_function", json!("mish")), &["activation_function: found `\"mish\"`; expected gelu_new,"]),
        (gpt2("layer_norm_epsilon", json!(1e-6)), &["layer_norm_epsilon: found `1e-6`; expected 0.00001"]),
        (gpt2("scale_attn_weights", json!(false)), &["scale_attn_weights: found `false`; expected true"]),
        (gpt2("scale_attn_by_inverse_layer_idx", json!(true)), &["expected false"]),
        (gpt2("resid_pdrop", json!(1.5)), &["resid_pdrop: found `1.5`; expected a number from 0 to below 1"]),
        (gpt2("tie_word_embeddings", json!(1)), &["tie_word_embeddings: found `1`; expected true or false"]),
        (xl("untie_r", json!(false)), &["untie_r: found `false`; expected true"]),
        (xl("cutoffs", json!([20000, 300_000])), &["cutoffs: found [20000, 300000]", "which is 267735"]),
        (xl("cutoffs", json!(5)), &["cutoffs: found `5`; expected a list"]),
        (xl("cutoffs", json!([9, 5, 7])), &["cutoffs"]),
        (xl("tie_projs", json!([true, true, true, true])), &["tie_projs: found", "[false,true,true,true] or"]),
        (xl("clamp_len", json!("no")), &["clamp_len: found"]),
        (xl("pre_lnorm", json!("no")), &["pre_lnorm: found", "true or false"]),
        (xl("d_model", json!(1023)), &["d_model: found 1023; expected an even width"]),
        (own(json!("gpt2")), &["lathe: found `\"gpt2\"`; expected an object"]),
        (own(json!({"backbone": "gpt2", "layers": "sf", "d_modle": 8, "vocab": 9})), &["did you mean `d_model`?"]),
        (own(json!({"backbone": "gpt2", "layers": "sf", "d_model": "8", "vocab": 9})), &["lathe.d_model: found"]),
        (own(json!({"backbone": "gpt2", "layers": 8})), &["lathe.layers: found `8`; expected a string"]),
        (own(json!({"backbone": "gpt2", "layers": "(sf", "d_model": 8, "vocab": 9})), &["never closed"]),
        (own(json!({"backbone": "gpt2", "layers": "sf", "vocab": 9})), &["`d_model` is missing"]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.json"), text).unwrap();
        assert_error(dir.path(), parts, true);
    }
    let nothing = tempfile::tempdir().unwrap();
    assert_error(nothing.path(), &["is missing; expected a model folder"], true);
    assert_error(&nothing.path().join("nowhere"), &["is missing"], true);
}
