//! `devices`.

use crate::support::run;

#[test]
fn lists_the_cpu_and_one_best() {
    let folder = tempfile::tempdir().unwrap();
    let said = run(folder.path(), ["devices", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let list: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    let list = list.as_array().unwrap();
    assert_eq!(list[0]["device"], "cpu");
    assert!(list[0]["limits"]["threads"].as_u64().unwrap() > 0);
    let best: Vec<_> = list.iter().filter(|device| device["best"] == true).collect();
    assert_eq!(best.len(), 1, "{said:?}");
    assert_eq!(best[0]["software"], false, "a software adapter is never best");
    for (index, device) in list.iter().skip(1).enumerate() {
        assert_eq!(device["device"], format!("wgpu:{index}"));
        assert!(device["error"].is_string() || !device["limits"].as_object().unwrap().is_empty(), "{device}");
    }

    let text = run(folder.path(), ["devices"]);
    assert_eq!(text.code, Some(0), "{text:?}");
    assert_eq!(text.stdout.matches("[best]").count(), 1, "{text:?}");
    for device in list {
        assert!(text.stdout.contains(device["name"].as_str().unwrap()), "{device}: {text:?}");
    }
}
