//! Users' kernels: an operation on elements, a kernel with its own grid, and what is refused, with the user's own lines.

use super::harness::*;
use std::sync::Arc;
use tallow_graph::{
    Backend, DType, Kernel,
    kernel::{Custom, CustomKernel, HostView, HostViewMut, Wgsl},
};
use tallow_wgpu::library::{Checked, Target, Vendor};

fn target() -> Target {
    Target {
        f16: false,
        subgroups: None,
        packed_dot: false,
        coop: tallow_wgpu::library::Coop::default(),
        naga: true,
        max_workgroup_invocations: 256,
        max_workgroup_storage: 16_384,
        max_storage_buffers: 8,
        max_dispatch: 65_535,
        software: false,
        vendor: Vendor::Other,
    }
}

fn floats(values: &[f32]) -> Input {
    Input::Plain(values.iter().flat_map(|v| v.to_le_bytes()).collect())
}

#[test]
fn an_operation_on_elements() {
    // out[r, c] = in0[r, c] * in1[c] + param(1) * rows, in1 being integers.
    let wgsl = "fn element(i: u32) {
    let c = i % in0_dim(1u);
    out[i] = in0[i] * f32(in1[c]) + param(1u) * f32(out_dim(0u)) + f32(in1_len() - in0_dim(1u)) + f32(in0_dim(5u) - 1u);
}";
    let cpu = |inputs: &[HostView<'_>], scalars: &[f64], out: &mut HostViewMut<'_>| {
        let (x, y) = (inputs[0].to_vec::<f32>()?, inputs[1].to_vec::<i32>()?);
        let (rows, cols) = (out.dims[0], out.dims[1]);
        let values: Vec<f32> =
            (0..rows * cols).map(|i| x[i] * y[i % cols] as f32 + scalars[1] as f32 * rows as f32).collect();
        out.copy_from(&values)
    };
    let custom = Arc::new(Custom::new("scale").with_wgsl(Wgsl::Elements(wgsl.into())).with_cpu(Box::new(cpu)));
    if let Some(device) = device() {
        device.check_custom(&custom, &[DType::F32, DType::I32], DType::F32).unwrap();
    }
    let kernel = Kernel::Custom(CustomKernel {
        custom,
        inputs: [(DType::F32, 2), (DType::I32, 1)].into_iter().collect(),
        output: (DType::F32, 2),
        scalars: 2,
    });
    let mut noise = Noise(90);
    for (rows, cols) in [(1usize, 1usize), (7, 13), (300, 5)] {
        let x: Vec<f32> = (0..rows * cols).map(|_| noise.float() as f32).collect();
        let y: Vec<u8> = (0..cols).flat_map(|i| (i as i32 - 3).to_le_bytes()).collect();
        let words = [rows, cols, cols, rows, cols].map(|v| v as i64);
        let scalars = [9.0, 0.5].map(tallow_graph::Scalar::F);
        let outputs = [(DType::F32, rows * cols)];
        check(
            "custom elements",
            &kernel,
            &[floats(&x), Input::Plain(y)],
            &outputs,
            &words,
            &scalars,
            relative(1e-6, 1e-6),
        );
    }
}

#[test]
fn a_kernel_with_a_grid() {
    // Rows reversed through workgroup memory, a workgroup a row of 64.
    let wgsl = "var<workgroup> row: array<u32, 64>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    row[lid] = in0[wid.x * 64u + lid];
    workgroupBarrier();
    out[wid.x * 64u + lid] = row[63u - lid];
}";
    let cpu = |inputs: &[HostView<'_>], _: &[f64], out: &mut HostViewMut<'_>| {
        let values: Vec<u32> = inputs[0]
            .to_vec::<u32>()?
            .chunks(64)
            .flat_map(|row| row.iter().rev().copied().collect::<Vec<_>>())
            .collect();
        out.copy_from(&values)
    };
    let grid = Box::new(|inputs: &[&[usize]], out: &[usize]| {
        assert_eq!(inputs[0], out);
        [out[0] as u32, 1, 1]
    });
    let custom = Arc::new(Custom::new("reverse").with_wgsl(Wgsl::Kernel(wgsl.into(), grid)).with_cpu(Box::new(cpu)));
    Checked::default().check(&custom, &[DType::U32], DType::U32, &target()).unwrap();
    let kernel = Kernel::Custom(CustomKernel {
        custom,
        inputs: std::iter::once((DType::U32, 2)).collect(),
        output: (DType::U32, 2),
        scalars: 0,
    });
    let mut noise = Noise(91);
    let input = Input::Plain(noise.elements(DType::U32, 640));
    check("custom grid", &kernel, &[input], &[(DType::U32, 640)], &[10, 64, 10, 64], &[], EXACT);
}

/// What the check says of a source of one F32 operand.
fn refusal(wgsl: Wgsl) -> String {
    let custom = Custom::new("mine").with_wgsl(wgsl);
    let error = Checked::default().check(&custom, &[DType::F32], DType::F32, &target());
    error.expect_err("it was taken").to_string()
}

#[test]
fn a_broken_source_is_told_by_its_own_lines() {
    let elements = |text: &str| refusal(Wgsl::Elements(text.into()));
    let said = elements("fn element(i: u32) {\n    let x = in0[i];\n    out[i] = sofplus(x);\n}\n");
    assert!(
        said.contains("mine") && said.contains("line 3: out[i] = sofplus(x);") && said.contains("sofplus"),
        "{said}"
    );
    // A type error, found by the validator or the parser.
    let said = elements("fn element(i: u32) {\n\n    out[i] = i;\n}");
    assert!(said.contains("line 3"), "{said}");
    // A directive keeps its line.
    let said = elements("diagnostic(off, derivative_uniformity);\nfn element(i: u32) {\n    out[i] = nope;\n}");
    assert!(said.contains("line 3: out[i] = nope;"), "{said}");
    let said = elements("fn elemnt(i: u32) {\n}\n");
    assert!(said.contains("fn element(i: u32)"), "{said}");
    let said = elements("fn element(i: u32 {\n}\n");
    assert!(said.contains("line 1"), "{said}");
    let said = elements(
        "@group(0) @binding(0) var<storage, read> mine: array<f32>;\nfn element(i: u32) {\n out[i] = mine[i];\n}",
    );
    assert!(said.contains("in0"), "{said}");
    let kernel = |text: &str| refusal(Wgsl::Kernel(text.into(), Box::new(|_, _| [1; 3])));
    let said = kernel("fn helper() {\n}\n");
    assert!(said.contains("entry point"), "{said}");
    let said = kernel("@compute @workgroup_size(512)\nfn main() {\n}\n");
    assert!(said.contains("512") && said.contains("256"), "{said}");
    let said = kernel("@compute @workgroup_size(64)\nfn main() {\n    out[0] = 1u;\n}\n");
    assert!(said.contains("line 3"), "{said}");
}

#[test]
fn dtypes_and_languages_are_refused() {
    let good = || Custom::new("id").with_wgsl(Wgsl::Elements("fn element(i: u32) {\n    out[i] = in0[i];\n}".into()));
    let checked = Checked::default();
    let custom = good();
    for dtype in [DType::F32, DType::I32, DType::U32] {
        checked.check(&custom, &[dtype], dtype, &target()).unwrap();
        checked.check(&custom, &[dtype], dtype, &target()).unwrap();
    }
    // Known for one dtype is not known for another.
    assert!(checked.check(&custom, &[DType::F32], DType::U32, &target()).is_err());
    for dtype in [DType::F16, DType::BF16, DType::U8, DType::I64] {
        let error = checked.check(&custom, &[dtype], DType::F32, &target()).unwrap_err().to_string();
        assert!(error.contains("to_dtype") && error.contains("F32"), "{error}");
    }
    let error = checked.check(&Custom::new("none"), &[DType::F32], DType::F32, &target()).unwrap_err().to_string();
    assert!(error.contains("WGSL"), "{error}");
}
