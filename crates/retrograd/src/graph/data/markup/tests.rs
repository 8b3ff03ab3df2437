//! Texts as NetworkX writes them, and what is wrong with others.

use std::path::PathBuf;

use super::*;
use crate::graph::EdgeRule;
use crate::graph::data::{read_edge_list, read_unlabelled};
use crate::graph::task::Predict;

/// `networkx.write_graphml` of three people, as `networkx 3.4` writes it.
const GRAPHML: &str = r#"<?xml version='1.0' encoding='utf-8'?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
  <key id="d3" for="edge" attr.name="weight" attr.type="double" />
  <key id="d2" for="node" attr.name="team" attr.type="string" />
  <key id="d1" for="node" attr.name="colour" attr.type="string"><default>red</default></key>
  <key id="d0" for="node" attr.name="age" attr.type="long" />
  <graph edgedefault="undirected">
    <!-- people -->
    <node id="ann"><data key="d0">31</data><data key="d2">A &amp; B</data></node>
    <node id="bob">
      <data key="d0">7</data><data key="d1">blue</data><data key="d2">C</data>
    </node>
    <node id="cleo"><data key="d0">52</data></node>
    <edge source="ann" target="bob"><data key="d3">0.5</data></edge>
    <edge source="bob" target="cleo"><data key="d3">2</data></edge>
  </graph>
</graphml>
"#;

/// `networkx.write_gml` of the same.
const GML: &str = r#"graph [
  node [
    id 0
    label "ann"
    age 31
    team "A &#38; B"
    colour "red"
    graphics [ x 1.0 y 2.0 ]
  ]
  node [ id 1 label "bob" age 7 colour "blue" team "C" ]
  node [ id 2 label "cleo" age 52 colour "red" ]
  edge [ source 0 target 1 weight 0.5 ]
  edge [ source 1 target 2 weight 2 ]
]
"#;

fn written(folder: &Path, name: &str, text: &str) -> EdgeListFiles {
    let path: PathBuf = folder.join(name);
    std::fs::write(&path, text).unwrap();
    EdgeListFiles {
        numbers: vec!["age".into()],
        categories: [("colour".into(), vec!["blue".into(), "red".into()])].into(),
        label: Some("team".into()),
        predict: Predict::Nodes,
        self_loops: EdgeRule::Keep,
        duplicates: EdgeRule::Keep,
        ..EdgeListFiles::of_edges(&path)
    }
}

#[test]
fn graphml_and_gml_say_the_same_about_the_same_graph() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("a.graphml", GRAPHML), ("a.gml", GML)] {
        let files = written(folder.path(), name, text);
        let data = read_edge_list(&files, 0).unwrap();
        assert_eq!(data.node_names.as_deref().unwrap(), ["ann", "bob", "cleo"]);
        assert_eq!(data.class_names, ["A & B", "C"]);
        assert_eq!(data.classes[..2], [0, 1]);
        assert_eq!(data.split[2], crate::graph::data::Split::None);
        // Age, blue, red; the weights of the edges follow.
        let expected = [31.0, 0.0, 1.0, 7.0, 1.0, 0.0, 52.0, 0.0, 1.0];
        assert_eq!(crate::Batch::values(&data.batch)[..9], expected);
        // Both ways, as neither says that edges are directed.
        assert_eq!(data.batch.graph().edges(), 4);
        assert_eq!(data.batch.edge_weights().unwrap(), [0.5, 2.0, 0.5, 2.0]);
        // Without features a node is itself.
        let alone = EdgeListFiles::of_edges(&files.edges);
        assert_eq!(read_unlabelled(&alone).unwrap().graph().nodes(), 3);
    }
}

#[test]
fn directions_are_the_files_own() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("d.graphml", GRAPHML.replace("undirected", "directed")),
        ("d.gml", GML.replace("graph [\n", "graph [\n  directed 1\n")),
    ] {
        let data = read_edge_list(&written(folder.path(), name, &text), 0).unwrap();
        assert_eq!(data.batch.graph().sources(), [0, 1], "{name}");
    }
}

#[test]
fn mistakes_are_named_by_their_lines() {
    let folder = tempfile::tempdir().unwrap();
    let says = |name: &str, text: &str, parts: &[&str]| {
        let error = read_edge_list(&written(folder.path(), name, text), 0).unwrap_err();
        let error = error.to_string();
        assert!(parts.iter().all(|p| error.contains(p)), "{error}");
    };
    let graphml = |from: &str, to: &str, parts: &[&str]| {
        assert!(GRAPHML.contains(from), "{from}");
        says("w.graphml", &GRAPHML.replacen(from, to, 1), parts);
    };
    graphml("target=\"cleo\"", "target=\"dan\"", &["line 15", "\"dan\""]);
    graphml(
        "id=\"bob\"",
        "id=\"ann\"",
        &["line 10", "\"ann\"", "already"],
    );
    graphml("</graphml>", "", &["ends within <graphml>"]);
    graphml("&amp;", "&eacute;", &["line 9", "&eacute;"]);
    graphml("key=\"d0\"", "key=\"d9\"", &["line 9", "\"d9\""]);
    graphml("<edge source=\"ann\"", "<edge ", &["line 14", "source"]);
    graphml(">7<", ">seven<", &["\"age\"", "node 1", "\"seven\""]);
    graphml("</node>", "</edge>", &["line 9", "</edge>"]);
    graphml("<edge ", "<hyperedge /><edge ", &["hyperedge"]);
    graphml("<!-- people -->", "<graph/>", &["second graph"]);
    graphml(
        "attr.name=\"team\"",
        "attr.name=\"club\"",
        &["\"team\"", "\"club\""],
    );
    let gml = |from: &str, to: &str, parts: &[&str]| {
        assert!(GML.contains(from), "{from}");
        says("w.gml", &GML.replacen(from, to, 1), parts);
    };
    gml("target 2", "target 9", &["line 13", "\"9\""]);
    gml("id 1", "id 0", &["line 10", "\"0\""]);
    gml("source 0", "", &["line 12", "source"]);
    gml("graph [", "graf [", &["no graph"]);
    gml("y 2.0 ]", "y 2.0 ", &["no end"]);
    gml("team \"C\" ]", "team \"C ]", &["line 11", "no end"]);
    gml("weight 2 ]", "weight ]", &["line 13", "\"weight\""]);
    says(
        "deep.gml",
        &format!("graph {}", "[ a ".repeat(40)),
        &["32 deep"],
    );
    let mut both = written(folder.path(), "b.gml", GML);
    both.labels = Some(folder.path().join("y.csv"));
    let error = read_edge_list(&both, 0).unwrap_err().to_string();
    assert!(
        error.contains("[data] labels") && error.contains("label ="),
        "{error}"
    );
}

#[test]
fn many_attributes_need_no_more_memory_than_their_file() {
    // A column for every attribute and every node would be 10¹⁰ cells.
    let folder = tempfile::tempdir().unwrap();
    let nodes = (0..100_000).map(|i| format!("node [ id {i} k{i} 1 ]\n"));
    let text = format!("graph [ {} ]", nodes.collect::<String>());
    let files = written(folder.path(), "many.gml", &text);
    let graph = read_marked(&files.edges).unwrap();
    assert_eq!(graph.of_nodes.names().len(), 100_000);
    assert_eq!(graph.of_nodes.get("k99999", 99_999), Some("1"));
    assert_eq!(graph.of_nodes.get("k99999", 5), None);
}
