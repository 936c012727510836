//! Ctrl-C, as SIGINT.

use crate::support::{Said, interrupt, model::Tiny, tallow};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

fn model(folder: &tempfile::TempDir) -> String {
    let path = folder.path().join("tiny.gguf");
    std::fs::write(&path, Tiny::default().bytes()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn it_stops_a_run_with_its_summary() {
    let folder = tempfile::tempdir().unwrap();
    let path = model(&folder);
    let args = ["run", "Hi", "--device", "cpu", "-n", "90000", "--json", "-m", &path];
    let mut child = tallow(folder.path()).args(args).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 4]).unwrap();
    interrupt(&child);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    let said = Said::from(child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(130), "{said:?}");
    assert!(said.stderr.ends_with("; interrupted\n"), "{said:?}");
    let json: serde_json::Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    assert_eq!(json["finish"], "interrupted");
    assert!(json["ids"].as_array().unwrap().len() < 90000);
}

#[test]
fn it_stops_an_answer_but_not_the_chat_and_ends_it_at_the_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let path = model(&folder);
    let args = ["chat", "--device", "cpu", "--temperature", "0", "-m", &path];
    let mut child = tallow(folder.path()).args(args).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..2 {
        stdin.write_all(b"abc\n").unwrap();
        stdout.read_exact(&mut [0; 4]).unwrap();
        interrupt(&child);
        // The answer's last line ends, and what follows is the prompt.
        stdout.read_line(&mut String::new()).unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    interrupt(&child);
    let said = Said::from(child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(130), "{said:?}");
    assert_eq!(said.stderr.matches("; interrupted\n").count(), 2, "{said:?}");
    drop(stdin);
}
