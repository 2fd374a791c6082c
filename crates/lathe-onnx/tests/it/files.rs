//! Files: what is written is read back, weights beside them too; what is damaged is told.

use lathe_onnx::{Array, EXTERNAL_ABOVE, Error, Graph, Kind, Model, Rounding, Tensor};
use std::path::Path;

/// y = gelu(x W) + 1, with a large W.
fn model() -> Model {
    let mut graph = Graph::default();
    let x = graph.input("x", Kind::F32, &["batch".into(), 16.into()]);
    graph.enter("block");
    let values: Vec<f32> = (0..16 * 32).map(|i| (i as f32 * 0.37).sin()).collect();
    let w = graph.weight("w", Tensor::floats(&[16, 32], &values));
    let h = graph.node("MatMul", &[&x, &w], &[]);
    let h = graph.node("Gelu", &[&h], &[("approximate", "tanh".into())]);
    let one = graph.float(1.0);
    let y = graph.node("Add", &[&h, &one], &[]);
    graph.output("y", &y, Kind::F32, &["batch".into(), 32.into()]);
    Model { graph }
}

fn run(model: &Model) -> Vec<Array> {
    let x = Array::of_floats(&[2, 16], (0..32).map(|i| (i as f32).cos()).collect());
    model.run(&[("x", x)], Rounding::Nearest).unwrap()
}

#[test]
fn what_is_written_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    for (name, above) in [("inside.onnx", EXTERNAL_ABOVE), ("beside.onnx", 100)] {
        let path = dir.path().join(name);
        model().write(&path, above).unwrap();
        let beside = dir.path().join(format!("{name}.data"));
        assert_eq!(beside.exists(), above == 100);
        let again = Model::read(&path).unwrap();
        let (written, read) = (model().graph, &again.graph);
        assert_eq!((&read.inputs, &read.outputs), (&written.inputs, &written.outputs));
        assert_eq!((&read.nodes, &read.weights), (&written.nodes, &written.weights));
        assert_eq!(run(&again), run(&model()));
        // Nothing is overwritten.
        assert!(matches!(model().write(&path, above), Err(Error::Io { .. })));
    }
}

#[test]
fn names_are_never_twice() {
    let mut graph = Graph::default();
    let x = graph.input("x", Kind::F32, &[]);
    let names: Vec<_> = (0..3).map(|_| graph.node("Relu", &[&x], &[])).collect();
    assert!(names[0] != names[1] && names[1] != names[2]);
    assert_eq!(graph.ints(&[1, 2]), graph.ints(&[1, 2]));
    assert_ne!(graph.ints(&[1]), graph.int(1));
}

/// A file cut off anywhere, or with any byte changed, is an error or another model, and no panic.
#[test]
fn damaged_files_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.onnx");
    model().write(&path, EXTERNAL_ABOVE).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let read = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        Model::read(&path)
    };
    for cut in (0..bytes.len()).step_by(23) {
        if let Err(error) = read(&bytes[..cut]) {
            assert!(error.to_string().contains("m.onnx"), "{error}");
        }
    }
    for at in (0..bytes.len()).step_by(17) {
        let mut changed = bytes.clone();
        changed[at] ^= 0xff;
        if let Ok(model) = read(&changed) {
            let x = Array::of_floats(&[2, 16], vec![1.0; 32]);
            let _ = model.run(&[("x", x)], Rounding::Nearest);
        }
    }
    assert!(read(b"no protobuf").is_err());
    let error = read(&[]).unwrap_err().to_string();
    assert!(error.contains("no graph"), "{error}");
    assert!(matches!(Model::read(&dir.path().join("none.onnx")), Err(Error::Io { .. })));
}

#[test]
fn weights_beside_are_held_against_their_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.onnx");
    model().write(&path, 0).unwrap();
    let told = |path: &Path| Model::read(path).unwrap_err().to_string();
    let data = dir.path().join("m.onnx.data");
    let values = std::fs::read(&data).unwrap();
    std::fs::write(&data, &values[..100]).unwrap();
    assert!(told(&path).contains("in a file of 100"), "{}", told(&path));
    std::fs::write(&data, &values).unwrap();
    // A file elsewhere is none of its own.
    let bytes = std::fs::read(&path).unwrap();
    let name = b"m.onnx.data";
    let at = bytes.windows(name.len()).position(|window| window == name).unwrap();
    for other in [b"../nnx.data", b"/etc/passwd"] {
        let mut changed = bytes.clone();
        changed[at..at + name.len()].copy_from_slice(other);
        std::fs::write(&path, changed).unwrap();
        assert!(told(&path).contains("in the same folder"), "{}", told(&path));
    }
    std::fs::write(&path, &bytes).unwrap();
    std::fs::remove_file(&data).unwrap();
    assert!(told(&path).contains("m.onnx.data"));
}
