//! `chat`: a scripted conversation.

use crate::support::{
    Said,
    model::{TEMPLATE, Tiny},
    run_with_input,
};
use tempfile::TempDir;

fn chat(tiny: &Tiny, more: &[&str], input: &str) -> (TempDir, Said) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    std::fs::write(&path, tiny.bytes()).unwrap();
    let args = ["chat", "--device", "cpu", "--temperature", "0", "-m", path.to_str().unwrap()];
    let said = run_with_input(folder.path(), args.iter().chain(more), input);
    assert_eq!(said.code, Some(0), "{said:?}");
    (folder, said)
}

/// The prompt tokens that each answer computed.
fn computed(said: &Said) -> Vec<usize> {
    let count = |line: &str| line.split_once("prompt ")?.1.split_once(' ')?.0.parse().ok();
    said.stderr.lines().filter_map(count).collect()
}

/// `<|start|>user\nabc<|end|><|start|>assistant\n`.
const FIRST: usize = 1 + 5 + 3 + 1 + 1 + 10;

#[test]
fn a_conversation_goes_on_from_the_cache() {
    let (_folder, said) = chat(&Tiny::default(), &["-n", "8"], "abc\n\nxyz\n/clear\nabc\n/what\n/exit\nnever\n");
    let answers: Vec<&str> = said.stdout.lines().collect();
    assert_eq!(answers.len(), 3, "{said:?}");
    assert!(answers.iter().all(|answer| answer.len() == 8), "{said:?}");
    assert_eq!(answers[0], answers[2], "a cleared conversation begins anew");
    assert_ne!(answers[0], answers[1]);
    // The last token of an answer is not in the cache; then come its end and the next message.
    assert_eq!(computed(&said), [FIRST, 1 + 1 + FIRST, FIRST], "{said:?}");
    assert!(said.stderr.contains("/what is no command"), "{said:?}");
}

#[test]
fn what_the_cache_gives_is_what_computing_anew_gives() {
    let options = ["-n", "8", "--activations", "f32", "--system"];
    let (_folder, going_on) = chat(&Tiny::default(), &[&options[..], &["S"]].concat(), "abc\nxyz\n");
    let answers: Vec<&str> = going_on.stdout.lines().collect();
    // The whole first turn as the template's text: the same prompt, of which nothing is cached. (As a message's text it
    // would be another prompt: messages cannot spell control tokens.)
    let turn = format!("S<|end|><|start|>user\nabc<|end|><|start|>assistant\n{}<|end|>", answers[0]);
    let template = format!("{{% raw %}}<|start|>system\n{turn}{{% endraw %}}{TEMPLATE}");
    let tiny = Tiny { template: Some(template.leak()), ..Tiny::default() };
    let (_folder, anew) = chat(&tiny, &options[..options.len() - 1], "xyz\n");
    assert_eq!(anew.stdout.lines().collect::<Vec<_>>(), [answers[1]]);
    // `<|start|>system\nS<|end|>`.
    let system = 1 + 7 + 1 + 1;
    assert_eq!(computed(&going_on), [system + FIRST, 2 + FIRST]);
    assert_eq!(computed(&anew), [system + FIRST + 8 + 1 + FIRST]);
}

#[test]
fn a_full_context_says_so_and_offers_a_new_beginning() {
    let tiny = Tiny { context: 40, ..Tiny::default() };
    let (_folder, said) = chat(&tiny, &[], "abc\nxyz\n/clear\nabc\n");
    assert_eq!(computed(&said), [FIRST, FIRST], "{said:?}");
    assert!(said.stderr.contains("The context of 40 tokens is full: /clear begins anew."), "{said:?}");
    assert!(said.stderr.contains("the context holds 40: /clear begins anew"), "{said:?}");
    let answers: Vec<&str> = said.stdout.lines().collect();
    assert_eq!(answers.len(), 2, "{said:?}");
    assert_eq!(answers[0], answers[1]);

    let (_folder, said) = chat(&tiny, &[], &format!("{}\nabc\n", "a".repeat(40)));
    assert!(said.stderr.contains("This message takes 58 tokens, the context holds 40: shorten it."), "{said:?}");
    assert_eq!(computed(&said), [FIRST], "{said:?}");
}
