//! Requests and replies.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::case::{Case, Fill};

/// What the driver asks for. Each request gets one reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// Who are you? Answered by [`Reply::Hello`].
    Hello,
    /// Read the inputs, compute once, write the result. Answered by [`Reply::Ready`] or [`Reply::Unsupported`]. The case before
    /// is forgotten.
    Prepare(Box<Job>),
    /// Compute `warm` times, then `times` times with a clock. Answered by [`Reply::Ran`].
    Run {
        /// Runs that are not measured.
        warm: u32,
        /// Runs that are.
        times: u32,
    },
    /// Measure what the machine can do at most. Answered by [`Reply::Floors`]; Tallow's participant alone does it.
    Floors,
}

/// A case with its files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The case.
    pub case: Case,
    /// Its inputs, in their order.
    pub inputs: Vec<InputFile>,
    /// Where the result goes: f32, little-endian, row-major; ids and positions as floats too.
    pub result: PathBuf,
    /// How many threads to use.
    pub threads: usize,
    /// The model file, for cases that need one.
    pub model: Option<PathBuf>,
}

/// The values of one input: little-endian, row-major, u32 for ids, else f32.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InputFile {
    /// The shape.
    pub dims: Vec<usize>,
    /// What the values are.
    pub fill: Fill,
    /// Where they are.
    pub path: PathBuf,
}

/// What a participant answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Reply {
    /// Its name and version.
    Hello(Hello),
    /// The result is written.
    Ready {
        /// Its shape.
        dims: Vec<usize>,
    },
    /// This participant has no way of doing that.
    Unsupported {
        /// Why.
        reason: String,
    },
    /// The times of the measured runs.
    Ran {
        /// One for each.
        nanoseconds: Vec<u64>,
    },
    /// The machine's limits.
    Floors(Floors),
    /// Something went wrong.
    Failed {
        /// What.
        message: String,
    },
}

/// A participant about itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// `Tallow`, `candle`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// How it was built, what it runs on.
    pub about: String,
}

/// What the machine can do at most, with the threads of the process that measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Floors {
    /// Bytes a second that can be read from memory.
    pub read: f64,
    /// Bytes a second that a copy moves, read and written bytes counted.
    pub copy: f64,
    /// f32 operations a second; a fused multiplication and addition are two.
    pub flops: f64,
    /// Operations a second of the 8-bit dot product, where there is such an instruction.
    pub int8: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Element, Input, Op, Unit};

    #[test]
    fn requests_read_back_as_they_were_written() {
        let input = Input { name: "x".into(), dims: vec![2, 3], fill: Fill::Uniform { scale: 1. } };
        let case = Case {
            group: "matmul".into(),
            name: "2".into(),
            op: Op::GeluAffineMul { a: 1.5, b: 0.5 },
            dtype: Element::Bf16,
            inputs: vec![input],
            flops: 1e9,
            bytes: 24.,
            tolerance: 1e-4,
            unit: Unit::Time,
        };
        let files = vec![InputFile { dims: vec![2, 3], fill: Fill::Ids { below: 7 }, path: "/a b".into() }];
        let job = Job { case, inputs: files, result: "r".into(), threads: 2, model: None };
        for request in [Request::Hello, Request::Run { warm: 1, times: 2 }, Request::Prepare(Box::new(job))] {
            let line = serde_json::to_string(&request).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Request>(&line).unwrap(), request, "{line}");
        }
        // The names that the scripts in Python rely on.
        assert_eq!(serde_json::to_string(&Request::Hello).unwrap(), r#"{"do":"hello"}"#);
        assert_eq!(
            serde_json::to_string(&Reply::Ran { nanoseconds: vec![5] }).unwrap(),
            r#"{"is":"ran","nanoseconds":[5]}"#
        );
    }

    #[test]
    fn replies_that_lack_something_are_refused() {
        for line in [r#"{"is":"ran"}"#, r#"{"is":"dancing"}"#, r#"{"nanoseconds":[1]}"#, "[]", "no JSON"] {
            assert!(serde_json::from_str::<Reply>(line).is_err(), "{line}");
        }
    }
}
