use super::*;
use crate::graph::data::{Split, read_edge_list, read_unlabelled};
use crate::graph::task::Predict;

fn files(folder: &Path, all: [(&str, &str); 3]) -> EdgeListFiles {
    for (name, text) in all {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let there = |(name, text): (&str, &str)| (!text.is_empty()).then(|| folder.join(name));
    EdgeListFiles {
        features: there(all[1]),
        labels: there(all[2]),
        predict: Predict::Nodes,
        ..EdgeListFiles::of_edges(&folder.join(all[0].0))
    }
}

#[test]
fn nodes_go_by_name_and_classes_are_text() {
    let folder = tempfile::tempdir().unwrap();
    let edges = "ann,bob\nbob,cleo\ncleo,ann\n";
    let labels = "node,team\ncleo,red\nann,blue\nbob,\n";
    let own = files(
        folder.path(),
        [("e.csv", edges), ("x.csv", ""), ("y.csv", labels)],
    );
    let data = read_edge_list(&own, 0).unwrap();
    assert_eq!(data.node_names.unwrap(), ["cleo", "ann", "bob"]);
    assert_eq!(data.class_names, ["blue", "red"]);
    assert_eq!(data.classes[..2], [1, 0]);
    assert_eq!(data.split[2], Split::None);
    assert_eq!(data.batch.graph().sources(), [1, 2, 0]);
    // With features the nodes are theirs, in their order, whatever the labels' is.
    let features = "name,age,city,height\nbob,1,Rome,3\nann,4,Oslo,6\ncleo,7,Rome,9\n";
    let own = files(
        folder.path(),
        [("e.csv", edges), ("x.csv", features), ("y.csv", labels)],
    );
    let data = read_edge_list(&own, 0).unwrap();
    assert_eq!(data.batch.width(), 2);
    assert_eq!(data.classes, [0, 0, 1]);
    assert!(
        data.notes.iter().any(|n| n.contains("city")),
        "{:?}",
        data.notes
    );
    // A node that features don't have.
    let own = files(
        folder.path(),
        [
            ("e.csv", "ann,bob\nann,dan\n"),
            ("x.csv", features),
            ("y.csv", labels),
        ],
    );
    let error = read_edge_list(&own, 0).unwrap_err().to_string();
    assert!(
        error.contains("line 2") && error.contains("\"dan\""),
        "{error}"
    );
}

#[test]
fn numbers_from_one_are_seen_and_said() {
    let folder = tempfile::tempdir().unwrap();
    let all = [
        ("e.csv", "1,2\n2,3\n"),
        ("x.csv", "a\n5\n6\n7\n"),
        ("y.csv", "c\n0\n1\n0\n"),
    ];
    let data = read_edge_list(&files(folder.path(), all), 0).unwrap();
    assert_eq!(data.batch.graph().sources(), [0, 1]);
    assert!(
        data.notes.iter().any(|n| n.contains("from 1 to 3")),
        "{:?}",
        data.notes
    );
}

#[test]
fn weights_and_features_of_edges_go_by_the_names_of_their_columns() {
    let folder = tempfile::tempdir().unwrap();
    let edges = "since,from,to,km,lanes\n1990,a,b,3.5,2\n2000,b,c,1.5,4\n";
    let mut own = files(
        folder.path(),
        [
            ("e.csv", edges),
            ("x.csv", ""),
            ("y.csv", "id,c\na,0\nb,1\nc,1\n"),
        ],
    );
    own.weight = Some("km".into());
    own.edge_features = vec!["lanes".into(), "since".into()];
    let batch = read_unlabelled(&own).unwrap();
    assert_eq!(batch.edge_weights().unwrap(), [3.5, 1.5]);
    let data = read_edge_list(&own, 0).unwrap();
    assert_eq!(data.batch.edge_features(), [2.0, 1990.0, 4.0, 2000.0]);
    own.edge_features = vec!["lane".into()];
    let error = read_edge_list(&own, 0).unwrap_err().to_string();
    assert!(
        error.contains("\"lane\"") && error.contains("\"lanes\""),
        "{error}"
    );
}
