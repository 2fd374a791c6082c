//! A file: a graph and its weights, inside or in a file beside it.

use crate::graph::{Attr, CONTRIBUTED, Dim, Graph, Node, Port};
use crate::proto::{
    AttributeProto, Dimension, Entry, GraphProto, ModelProto, NodeProto, OperatorSetId, Shape, Size, TensorProto,
    TensorType, TypeProto, ValueInfo,
};
use crate::tensor::{Kind, Tensor};
use crate::{Error, Result};
use prost::Message;
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The version of ONNX's operators: the first with GELU.
const OPSET: i64 = 20;
/// The version of the format that belongs to it.
const IR_VERSION: i64 = 9;
/// Bytes of weights from which on they lie in a file beside: protobuf ends at 2 GiB.
pub const EXTERNAL_ABOVE: usize = 1_900_000_000;
/// Weights smaller than this stay inside in any case.
const SMALL: usize = 1024;
/// Where weights beside begin: at multiples of a page, so that they can be mapped.
const ALIGNMENT: u64 = 4096;
/// How a tensor says that it lies beside.
const EXTERNAL: i32 = 1;

/// A file's content.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Model {
    /// What it computes.
    pub graph: Graph,
}

impl Model {
    /// Writes it to a path; weights of more bytes than `external_above` together go into a file of the same name with
    /// `.data` behind it.
    pub fn write(self, path: &Path, external_above: usize) -> Result<()> {
        let total: usize = self.graph.weights.iter().map(|(_, tensor)| tensor.data.len()).sum();
        let mut proto = self.into_proto();
        let mut beside = Vec::new();
        if total > external_above {
            beside = move_out(&mut proto, path);
        }
        let io = |file: &Path| {
            let file = file.to_path_buf();
            move |error| Error::Io { file, error }
        };
        if !beside.is_empty() {
            let data = data_path(path);
            let write = || -> std::io::Result<()> {
                let mut out = BufWriter::with_capacity(1 << 20, File::create_new(&data)?);
                for bytes in beside {
                    out.write_all(&bytes)?;
                    let padding = (bytes.len() as u64).next_multiple_of(ALIGNMENT) - bytes.len() as u64;
                    out.write_all(&vec![0; padding as usize])?;
                }
                out.into_inner()?.sync_all()
            };
            write().map_err(io(&data))?;
        }
        let bytes = proto.encode_to_vec();
        drop(proto);
        let write = || -> std::io::Result<()> {
            let mut out = File::create_new(path)?;
            out.write_all(&bytes)?;
            out.sync_all()
        };
        write().map_err(io(path))
    }

    /// Reads a file, and what lies beside it.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|error| Error::Io { file: path.into(), error })?;
        let reader = Reader { path };
        let proto = ModelProto::decode(&*bytes)
            .map_err(|error| reader.wrong("the message", format!("a wrong one ({error})"), "an ONNX model"))?;
        drop(bytes);
        reader.model(proto)
    }

    fn into_proto(self) -> ModelProto {
        let contributed = self.graph.nodes.iter().any(|node| node.domain == CONTRIBUTED);
        let mut opset_import = vec![OperatorSetId { domain: String::new(), version: OPSET }];
        if contributed {
            opset_import.push(OperatorSetId { domain: CONTRIBUTED.into(), version: 1 });
        }
        let graph = GraphProto {
            node: self.graph.nodes.into_iter().map(node_to).collect(),
            name: "model".into(),
            initializer: self.graph.weights.into_iter().map(|(name, tensor)| tensor_to(name, tensor)).collect(),
            input: self.graph.inputs.iter().map(port_to).collect(),
            output: self.graph.outputs.iter().map(port_to).collect(),
        };
        ModelProto {
            ir_version: IR_VERSION,
            opset_import,
            producer_name: "lathe".into(),
            producer_version: env!("CARGO_PKG_VERSION").into(),
            graph: Some(graph),
        }
    }
}

/// Where weights beside a file lie.
fn data_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".data");
    path.with_file_name(name)
}

/// Takes the large weights out of a message: their bytes, in the order in which they will lie in the file beside.
fn move_out(proto: &mut ModelProto, path: &Path) -> Vec<Vec<u8>> {
    let data = data_path(path);
    let location = data.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (mut beside, mut offset) = (Vec::new(), 0u64);
    let tensors = proto.graph.iter_mut().flat_map(|graph| &mut graph.initializer);
    for tensor in tensors.filter(|tensor| tensor.raw_data.len() >= SMALL) {
        let bytes = std::mem::take(&mut tensor.raw_data);
        let entry = |key: &str, value: String| Entry { key: key.into(), value };
        tensor.external_data = vec![
            entry("location", location.clone()),
            entry("offset", offset.to_string()),
            entry("length", bytes.len().to_string()),
        ];
        tensor.data_location = EXTERNAL;
        offset += (bytes.len() as u64).next_multiple_of(ALIGNMENT);
        beside.push(bytes);
    }
    beside
}

fn node_to(node: Node) -> NodeProto {
    NodeProto {
        name: node.outputs.first().cloned().unwrap_or_default(),
        input: node.inputs,
        output: node.outputs,
        op_type: node.op,
        domain: node.domain,
        attribute: node.attributes.into_iter().map(|(name, attr)| attribute_to(name, attr)).collect(),
    }
}

fn attribute_to(name: String, attr: Attr) -> AttributeProto {
    let mut proto = AttributeProto { name, ..AttributeProto::default() };
    match attr {
        Attr::Float(value) => (proto.kind, proto.f) = (1, Some(value)),
        Attr::Int(value) => (proto.kind, proto.i) = (2, Some(value)),
        Attr::Text(value) => (proto.kind, proto.s) = (3, Some(value.into_bytes())),
        Attr::Ints(values) => (proto.kind, proto.ints) = (7, values),
    }
    proto
}

fn tensor_to(name: String, tensor: Tensor) -> TensorProto {
    TensorProto {
        dims: tensor.shape.iter().map(|&size| size as i64).collect(),
        data_type: tensor.kind as i32,
        name,
        raw_data: tensor.data,
        ..TensorProto::default()
    }
}

fn port_to(port: &Port) -> ValueInfo {
    let dim = |dim: &Dim| Dimension {
        size: Some(match dim {
            Dim::Fixed(size) => Size::Value(*size as i64),
            Dim::Named(name) => Size::Param(name.clone()),
        }),
    };
    let shape = Shape { dim: port.shape.iter().map(dim).collect() };
    let tensor = TensorType { elem_type: port.kind as i32, shape: Some(shape) };
    ValueInfo { name: port.name.clone(), kind: Some(TypeProto { tensor: Some(tensor) }) }
}

/// Makes a model out of a message, of a file that errors name.
struct Reader<'a> {
    path: &'a Path,
}

impl Reader<'_> {
    fn wrong(&self, place: impl Into<String>, found: impl Into<String>, expected: impl Into<String>) -> Error {
        let short = |text: String| text.chars().take(120).flat_map(char::escape_debug).collect();
        let (place, found, expected) = (short(place.into()), short(found.into()), expected.into());
        Error::Malformed { file: self.path.into(), place, found, expected }
    }

    fn model(&self, proto: ModelProto) -> Result<Model> {
        let Some(graph) = proto.graph else { return Err(self.wrong("the model", "no graph", "a graph")) };
        let mut weights = Vec::new();
        for tensor in graph.initializer {
            weights.push((tensor.name.clone(), self.tensor(tensor)?));
        }
        let ports = |infos: Vec<ValueInfo>| infos.into_iter().map(|info| self.port(info)).collect::<Result<_>>();
        let nodes = graph.node.into_iter().map(|node| self.node(node)).collect::<Result<_>>()?;
        let (inputs, outputs) = (ports(graph.input)?, ports(graph.output)?);
        Ok(Model { graph: Graph { inputs, outputs, nodes, weights, ..Graph::default() } })
    }

    fn kind(&self, place: &str, id: i32) -> Result<Kind> {
        Kind::of_id(id).ok_or_else(|| self.wrong(place, format!("numbers of type {id}"), "a type that is read here"))
    }

    fn tensor(&self, proto: TensorProto) -> Result<Tensor> {
        let place = format!("tensor {}", proto.name);
        let kind = self.kind(&place, proto.data_type)?;
        let shape: Option<Vec<usize>> = proto.dims.iter().map(|&size| usize::try_from(size).ok()).collect();
        let bytes = shape.as_ref().and_then(|shape| {
            shape.iter().try_fold(kind.bytes(), |bytes, &size| bytes.checked_mul(size)).zip(Some(shape))
        });
        let Some((bytes, shape)) = bytes else {
            return Err(self.wrong(place, format!("the shape {:?}", proto.dims), "a shape that there can be"));
        };
        let data = match proto.data_location {
            EXTERNAL => self.beside(&place, &proto.external_data, bytes)?,
            _ => proto.raw_data,
        };
        if data.len() != bytes {
            return Err(self.wrong(place, format!("{} bytes", data.len()), format!("{bytes}, as its shape says")));
        }
        Ok(Tensor { kind, shape: shape.clone(), data })
    }

    /// The bytes of a tensor in a file beside.
    fn beside(&self, place: &str, entries: &[Entry], bytes: usize) -> Result<Vec<u8>> {
        let entry = |key: &str| entries.iter().find(|entry| entry.key == key).map(|entry| &*entry.value);
        let location = entry("location").unwrap_or_default();
        let mut parts = Path::new(location).components();
        let (Some(std::path::Component::Normal(name)), None) = (parts.next(), parts.next()) else {
            return Err(self.wrong(place, format!("weights in `{location}`"), "the name of a file in the same folder"));
        };
        let number = |key: &str, missing: u64| match entry(key) {
            None => Ok(missing),
            Some(text) => text.parse().map_err(|_| self.wrong(place, format!("{key} `{text}`"), "a whole number")),
        };
        let (offset, length) = (number("offset", 0)?, number("length", bytes as u64)?);
        let path = self.path.with_file_name(name);
        let io = |error| Error::Io { file: path.clone(), error };
        let mut file = File::open(&path).map_err(io)?;
        let size = file.metadata().map_err(io)?.len();
        if length != bytes as u64 || offset.checked_add(length).is_none_or(|end| end > size) {
            let found = format!("{length} bytes from {offset} on in a file of {size}");
            return Err(self.wrong(place, found, format!("{bytes} bytes, as its shape says")));
        }
        let mut data = vec![0; bytes];
        file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(&mut data)).map_err(io)?;
        Ok(data)
    }

    fn port(&self, info: ValueInfo) -> Result<Port> {
        let place = format!("port {}", info.name);
        let Some(tensor) = info.kind.and_then(|kind| kind.tensor) else {
            return Err(self.wrong(place, "something else than a tensor", "a tensor"));
        };
        let kind = self.kind(&place, tensor.elem_type)?;
        let dim = |dim: Dimension| match dim.size {
            Some(Size::Value(size)) => Dim::Fixed(usize::try_from(size).unwrap_or_default()),
            Some(Size::Param(name)) => Dim::Named(name),
            None => Dim::Named(String::new()),
        };
        let shape = tensor.shape.unwrap_or_default().dim.into_iter().map(dim).collect();
        Ok(Port { name: info.name, kind, shape })
    }

    fn node(&self, proto: NodeProto) -> Result<Node> {
        let place = format!("node {}", proto.name);
        let attribute = |proto: AttributeProto| {
            let attr = match proto.kind {
                1 => Attr::Float(proto.f.unwrap_or_default()),
                2 => Attr::Int(proto.i.unwrap_or_default()),
                3 => Attr::Text(String::from_utf8_lossy(&proto.s.unwrap_or_default()).into_owned()),
                7 => Attr::Ints(proto.ints),
                kind => {
                    let found = format!("attribute {} of type {kind}", proto.name);
                    return Err(self.wrong(&place, found, "numbers and words"));
                }
            };
            Ok((proto.name, attr))
        };
        Ok(Node {
            op: proto.op_type,
            domain: proto.domain,
            inputs: proto.input,
            outputs: proto.output,
            attributes: proto.attribute.into_iter().map(attribute).collect::<Result<_>>()?,
        })
    }
}
