//! What ONNX Runtime computed (`oracles/onnx_operators.py`): each output `NAME` beside `NAME.expected`.

use lathe_onnx::{Array, Graph, Kind, Model, Rounding, Tensor};
use std::path::Path;

fn fixture() -> Model {
    Model::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/operators.onnx")).unwrap()
}

#[test]
fn operators_compute_what_onnx_runtime_computes() {
    let model = fixture();
    let found = model.run(&[], Rounding::Nearest).unwrap();
    assert!(found.len() > 140, "a pair for each case");
    for (ports, arrays) in model.graph.outputs.chunks_exact(2).zip(found.chunks_exact(2)) {
        let (name, [found, expected]) = (&ports[0].name, arrays) else { unreachable!("pairs") };
        assert_eq!(ports[1].name, format!("{name}.expected"));
        assert_eq!(found.shape, expected.shape, "{name}");
        match (found.floats(), expected.floats()) {
            (Some(a), Some(b)) => {
                let most = b.iter().fold(1.0f32, |most, x| most.max(x.abs()));
                let worst = a.iter().zip(b).fold(0.0f32, |worst, (a, b)| worst.max((a - b).abs()));
                assert!(worst <= 1e-5 * most, "{name}: {worst} of {most}");
            }
            _ => assert_eq!(found, expected, "{name}"),
        }
    }
}

/// Without rounding what is left is the product of the numbers themselves.
#[test]
fn without_rounding_products_are_exact() {
    let mut graph = Graph::default();
    let x = graph.input("x", Kind::F32, &[2.into(), 3.into()]);
    let codes = graph.weight("codes", Tensor::new(Kind::I8, &[3, 1], vec![1, 2, 0xff]));
    let scales = graph.weight("scales", Tensor::floats(&[1], &[0.5]));
    let y = graph.contributed("DynamicQuantizeMatMul", &[&x, &codes, &scales], &[]);
    graph.output("y", &y, Kind::F32, &[2.into(), 1.into()]);
    let model = Model { graph };
    let x = Array::of_floats(&[2, 3], vec![0.123, -0.456, 0.789, 1.0, 0.011, -3.0]);
    let run = |rounding| model.run(&[("x", x.clone())], rounding).unwrap()[0].floats().unwrap().to_vec();
    let exact: [f32; 2] = [0.5 * (0.123 - 2.0 * 0.456 - 0.789), 0.5 * (1.0 + 0.022 + 3.0)];
    let worst = |found: &[f32]| found.iter().zip(&exact).fold(0.0f32, |worst, (a, b)| worst.max((a - b).abs()));
    assert!(worst(&run(Rounding::None)) < 1e-6);
    let rounded = worst(&run(Rounding::Nearest));
    assert!((1e-5..0.05).contains(&rounded), "{rounded}");
}

#[test]
fn what_cannot_be_computed_is_told() {
    type Build<'a> = &'a dyn Fn(&mut Graph) -> lathe_onnx::Value;
    let run = |build: Build<'_>| {
        let mut graph = Graph::default();
        let y = build(&mut graph);
        graph.output("y", &y, Kind::F32, &[]);
        Model { graph }.run(&[], Rounding::Nearest).unwrap_err().to_string()
    };
    let floats = |graph: &mut Graph, shape: &[usize]| {
        graph.numbers("floats", Tensor::floats(shape, &vec![1.0; shape.iter().product()]))
    };
    let cases: [(Build<'_>, &str); 6] = [
        (&|graph| graph.node("Frobnicate", &[], &[]), "not known"),
        (&|graph| graph.node("Relu", &[], &[]), "input 0 is missing"),
        (
            &|graph| {
                let (a, b) = (floats(graph, &[2, 3]), floats(graph, &[2, 3]));
                graph.node("MatMul", &[&a, &b], &[])
            },
            "[2, 3] times [2, 3]",
        ),
        (
            &|graph| {
                let (a, b) = (floats(graph, &[2]), floats(graph, &[3]));
                graph.node("Add", &[&a, &b], &[])
            },
            "shapes [2] and [3]",
        ),
        (
            &|graph| {
                let (a, row) = (floats(graph, &[2, 1]), graph.int(2));
                graph.node("Gather", &[&a, &row], &[])
            },
            "axis 2 of 2",
        ),
        (
            &|graph| {
                let (a, shape) = (floats(graph, &[2, 3]), graph.ints(&[4, -1]));
                graph.node("Reshape", &[&a, &shape], &[])
            },
            "[2, 3] to [4, -1]",
        ),
    ];
    for (build, told) in cases {
        let error = run(build);
        assert!(error.contains(told), "{error}");
    }
}
