//! Conformance: one table of operations, run on every device over many shapes, layouts and dtypes, against the reference
//! device, which computes in f64 with plain loops. A seeded sample by default, everything with `TALLOW_TEST_FULL=1`.

mod compare;
mod gradient;
mod inputs;
mod special;
mod support;
mod table;

use inputs::{Case, Layouts, cases};
use table::{INDEXING, Row, TABLE};
use tallow::{DType, Device, Options, Tensor};
use tallow_tests::device;

/// Runs a row on a device; returns how many cases were compared.
fn check(row: &Row, dtype: DType, on: &Device, oracle: &Device, name: &str, full: bool) -> usize {
    let mut compared = 0;
    for case in cases(row, dtype, full) {
        let run = |device: &Device| -> tallow::Result<Tensor> {
            let inputs: Vec<Tensor> = case.inputs.iter().map(|i| i.on(device)).collect::<tallow::Result<_>>()?;
            (row.run)(&inputs)
        };
        let want = match run(oracle) {
            Ok(want) => want,
            Err(error) => {
                // What the reference refuses, every device refuses.
                assert!(run(on).is_err(), "{} {dtype} on {name}: {case:?}: the reference says {error}", row.name);
                continue;
            }
        };
        let got = run(on).unwrap_or_else(|error| panic!("{} {dtype} on {name}: {case:?}: {error}", row.name));
        if let Err(why) = compare::close(&got, &want, row.tolerance) {
            panic!("{} {dtype} on {name}: {case:?}: {why}", row.name);
        }
        compared += 1;
    }
    compared
}

fn all(name: &str) {
    let Some(candidate) = device(name) else { return };
    let oracle = device("reference").expect("the reference is always there").device;
    let full = std::env::var("TALLOW_TEST_FULL").is_ok_and(|v| v == "1");
    let (mut rows, mut compared) = (0, 0);
    let mut refused = Vec::new();
    for row in TABLE.iter().chain(INDEXING) {
        for &dtype in row.dtypes {
            // What a device cannot hold at all is refused when the tensor is made.
            if candidate.device.engine().backend().check_dtype(dtype).is_err() {
                let made = Tensor::zeros(1, dtype, &candidate.device);
                assert!(made.is_err(), "{name} refuses {dtype}, but makes a tensor of it");
                refused.push(dtype);
                continue;
            }
            rows += 1;
            compared += check(row, dtype, &candidate.device, &oracle, name, full);
        }
    }
    refused.sort();
    refused.dedup();
    println!("{name}: {rows} operations x dtypes, {compared} cases; refused when made: {refused:?}");
    assert!(compared > 500, "only {compared} cases ran");
}

/// docs/ops.md says what holds on a device.
fn documented(name: &'static str) {
    let Some(candidate) = device(name) else { return };
    let oracle = device("reference").expect("the reference is always there").device;
    // An engine of its own, so that its counts are this test's.
    let device = Device::with_options(candidate.device.engine().backend().clone(), Options::default());
    support::Page::measure(name, &device, &oracle).hold_against_the_docs();
}

#[test]
fn cpu() {
    all("cpu");
}

#[test]
fn wgpu() {
    all("wgpu");
}

#[test]
fn cpu_is_documented() {
    documented("cpu");
}

#[test]
fn wgpu_is_documented() {
    documented("wgpu");
}

/// Every case has at least one odd size, one view and one empty shape somewhere.
#[test]
fn the_cases_cover_the_layouts() {
    let row = TABLE.iter().find(|row| row.name == "add").expect("add is in the table");
    let seen: Vec<Layouts> = cases(row, DType::F32, false).iter().flat_map(Case::layouts).collect();
    for layout in Layouts::ALL {
        assert!(seen.contains(&layout), "{layout:?} is never tried");
    }
}
