//! Every kind of kernel, in every implementation and on every tier, as WGSL: through naga's parser, validator and its
//! SPIR-V, MSL and HLSL writers. With TALLOW_WGSL_DUMP set to a folder, the browsers' variants are written there, each
//! with a first line of the features that it needs, for Tint to judge; with TALLOW_SPIRV_DUMP, the SPIR-V of the native
//! ones, for spirv-val.

mod kernels;

use std::{collections::HashSet, fs, path::PathBuf};
use tallow_graph::DType;
use tallow_wgpu::library::{self, Coop, Target, Vendor};

/// A device at the guaranteed minimum, with the given tiers.
fn target(naga: bool, subgroups: Option<(u32, u32)>, packed_dot: bool, f16: bool, software: bool) -> Target {
    Target {
        f16,
        subgroups,
        packed_dot,
        coop: Coop::default(),
        naga,
        max_workgroup_invocations: 256,
        max_workgroup_storage: 16_384,
        max_storage_buffers: 8,
        max_dispatch: 65_535,
        software,
        vendor: Vendor::Other,
    }
}

/// A native device with cooperative matrices, tier T4.
fn cooperative(coop: Coop, subgroups: (u32, u32)) -> Target {
    Target { coop, max_workgroup_storage: 32_768, ..target(true, Some(subgroups), true, true, false) }
}

fn targets(naga: bool) -> Vec<Target> {
    let mut all = vec![
        target(naga, None, false, false, false),
        target(naga, None, false, false, true),
        target(naga, None, false, true, false),
        target(naga, None, false, true, true),
        target(naga, Some((32, 32)), true, true, false),
        target(naga, Some((8, 128)), true, true, false),
    ];
    if naga {
        // As with NVIDIA, AMD, Apple, and software.
        all.extend([
            cooperative(Coop { f16: 16, f32: 0 }, (32, 32)),
            cooperative(Coop { f16: 16, f32: 0 }, (32, 64)),
            cooperative(Coop { f16: 8, f32: 8 }, (32, 32)),
            cooperative(Coop { f16: 8, f32: 8 }, (8, 8)),
        ]);
    }
    all
}

/// Distinct sources of all kernels, with a name and the target.
fn sources(naga: bool) -> Vec<(String, String, Target)> {
    let mut seen = HashSet::new();
    let mut all = Vec::new();
    for target in targets(naga) {
        for (name, kernel, words) in kernels::all() {
            let implementations = library::implementations(&kernel, &words, &target);
            assert!(!implementations.is_empty(), "{name}: no implementation");
            for implementation in implementations {
                let shader = library::shader(&kernel, implementation.id, &target)
                    .unwrap_or_else(|error| panic!("{name} {}: {error}", implementation.id));
                assert!(shader.param_words <= 256, "{name}: {} parameter words", shader.param_words);
                if seen.insert(shader.source.clone()) {
                    all.push((format!("{name}_{}", implementation.id), shader.source, target.clone()));
                }
            }
        }
    }
    all
}

fn check(name: &str, source: &str) -> Result<(), String> {
    use naga::back::{hlsl, msl, spv};
    let module = naga::front::wgsl::parse_str(source).map_err(|e| e.emit_to_string(source))?;
    let capabilities = naga::valid::Capabilities::SUBGROUP
        | naga::valid::Capabilities::SUBGROUP_BARRIER
        | naga::valid::Capabilities::SHADER_FLOAT16
        | naga::valid::Capabilities::COOPERATIVE_MATRIX
        | naga::valid::Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    let info = naga::valid::Validator::new(naga::valid::ValidationFlags::all(), capabilities)
        .validate(&module)
        .map_err(|e| e.emit_to_string(source))?;
    let cooperative = source.contains("enable wgpu_cooperative_matrix;");
    let lang_version = if cooperative { (1, 6) } else { (1, 3) };
    let words = spv::write_vec(&module, &info, &spv::Options { lang_version, ..Default::default() }, None)
        .map_err(|e| format!("SPIR-V: {e}"))?;
    if let Some(folder) = std::env::var_os("TALLOW_SPIRV_DUMP") {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let file = format!("{name}_{:08x}.spv", source.bytes().fold(7u32, |h, b| h.wrapping_mul(31) ^ u32::from(b)));
        fs::write(PathBuf::from(folder).join(file), bytes).unwrap();
    }
    let options = msl::Options { lang_version: (2, 4), fake_missing_bindings: true, ..Default::default() };
    msl::write_string(&module, &info, &options, &msl::PipelineOptions::default()).map_err(|e| format!("MSL: {e}"))?;
    if cooperative {
        // Not in HLSL.
        return Ok(());
    }
    let options =
        hlsl::Options { shader_model: hlsl::ShaderModel::V6_0, fake_missing_bindings: true, ..Default::default() };
    let pipeline = hlsl::PipelineOptions::default();
    let mut text = String::new();
    hlsl::Writer::new(&mut text, &options, &pipeline).write(&module, &info, None).map_err(|e| format!("HLSL: {e}"))?;
    assert!(!text.is_empty(), "{name}");
    Ok(())
}

#[test]
fn every_shader_passes_naga() {
    let all = sources(true);
    assert!(all.len() > 150, "{} shaders", all.len());
    let mut failures = Vec::new();
    for (name, source, _) in &all {
        if let Err(error) = check(name, source) {
            failures.push(format!("{name}: {error}"));
        }
    }
    if let Some(folder) = std::env::var_os("TALLOW_WGSL_FAILED") {
        for (name, source, _) in &all {
            fs::write(PathBuf::from(&folder).join(format!("{name}.wgsl")), source).unwrap();
        }
    }
    println!("{} shaders", all.len());
    assert!(failures.is_empty(), "{} of {} fail:\n{}", failures.len(), all.len(), failures.join("\n"));
}

/// Offered where the device has them and their workgroup memory, and nowhere else; always with sums in f32.
#[test]
fn cooperative_matrices_are_for_devices_that_have_them() {
    let (mut half, mut single) = (0, 0);
    for target in targets(true) {
        let small = Target { max_workgroup_storage: 16_384, ..target.clone() };
        let lower = Target { coop: Coop::default(), ..target.clone() };
        for (name, kernel, words) in kernels::all() {
            let sources = |target: &Target| -> Vec<String> {
                let ways = library::implementations(&kernel, &words, target);
                ways.iter().map(|way| library::shader(&kernel, way.id, target).unwrap().source).collect()
            };
            assert!(sources(&lower).iter().all(|source| !source.contains("cooperative_matrix;")), "{name}");
            for (target, source) in
                [&target, &small].into_iter().flat_map(|t| sources(t).into_iter().map(move |s| (t, s)))
            {
                if !source.contains("coopMultiplyAdd(") {
                    assert!(!source.contains("cooperative_matrix;"), "{name}");
                    continue;
                }
                assert!(source.contains("<f32, C>") && !source.contains("<f16, C>"), "{name}: sums in f16");
                let of_half = source.contains("<f16, A>");
                let size = if of_half { target.coop.f16 } else { target.coop.f32 };
                assert!(size > 0 && source.contains(&format!("coop_mat{size}x{size}<")), "{name}");
                let tallow_graph::Kernel::Contract(contract) = &kernel else { panic!("{name}") };
                assert!(!of_half || contract.left.1 == DType::F16, "{name}: f32 does not fit f16");
                let bytes = workgroup_bytes(&source);
                assert!(bytes <= target.max_workgroup_storage, "{name}: {bytes} bytes of workgroup memory");
                if of_half {
                    half += 1;
                } else {
                    single += 1;
                }
            }
        }
    }
    assert!(half > 50 && single > 50, "{half} of f16, {single} of f32");
}

/// What the workgroup variables of a shader take.
fn workgroup_bytes(source: &str) -> u32 {
    let module = naga::front::wgsl::parse_str(source).unwrap();
    let mut layouter = naga::proc::Layouter::default();
    layouter.update(module.to_ctx()).unwrap();
    let shared = module.global_variables.iter().filter(|(_, v)| v.space == naga::AddressSpace::WorkGroup);
    shared.map(|(_, v)| layouter[v.ty].size).sum()
}

#[test]
fn browser_variants_are_written_for_tint() {
    let all = sources(false);
    for (name, source, _) in &all {
        // The line must be there where the builtins are, and only there.
        assert_eq!(source.contains("enable subgroups;"), source.contains("subgroupAdd("), "{name}");
        assert_eq!(source.contains("enable f16;"), source.contains("f16>"), "{name}");
    }
    let Some(folder) = std::env::var_os("TALLOW_WGSL_DUMP") else { return };
    let folder = PathBuf::from(folder);
    fs::create_dir_all(&folder).unwrap();
    for (i, (name, source, _)) in all.iter().enumerate() {
        let mut needs = Vec::new();
        if source.contains("enable f16;") {
            needs.push("shader-f16");
        }
        if source.contains("enable subgroups;") {
            needs.push("subgroups");
        }
        let text = format!("// requires: {}\n{source}", needs.join(", "));
        fs::write(folder.join(format!("{i:04}_{name}.wgsl")), text).unwrap();
    }
}

#[test]
fn the_uniform_block_has_its_promised_size() {
    let target = target(true, Some((32, 32)), true, true, false);
    for (name, kernel, words) in kernels::all() {
        let scalars = [tallow_graph::Scalar::F(1.0); 8];
        let mut block = Vec::new();
        library::params(&kernel, &words, &scalars, &mut block).unwrap_or_else(|error| panic!("{name}: {error}"));
        for implementation in library::implementations(&kernel, &words, &target) {
            let shader = library::shader(&kernel, implementation.id, &target).unwrap();
            assert_eq!(block.len(), shader.param_words, "{name}");
            let grids = library::grids(&kernel, implementation.id, &words, &target);
            assert_eq!(grids.len(), shader.entries.len(), "{name}");
        }
        // Words that do not fit are refused, not cut.
        let mut large = words.clone();
        large[0] = 1 << 33;
        assert!(library::params(&kernel, &large, &scalars, &mut Vec::new()).is_err(), "{name}");
        assert!(library::params(&kernel, &words[..words.len() - 1], &scalars, &mut Vec::new()).is_err(), "{name}");
    }
}

/// At tier T1 no shader shares words between invocations for F16, and T0 needs no f16.
#[test]
fn half_precision_is_native_where_the_device_has_it() {
    let (mut native, mut packed) = (0, 0);
    for f16 in [false, true] {
        let target = target(true, None, false, f16, false);
        for (name, kernel, words) in kernels::all() {
            let half = match &kernel {
                tallow_graph::Kernel::Map(k) => k.parts.iter().all(|part| part.expr.dtype() == Some(DType::F16)),
                tallow_graph::Kernel::Row(k) => k.after.dtype() == Some(DType::F16),
                tallow_graph::Kernel::Contract(k) => k.parts.iter().all(|p| p.epilogue.dtype() == Some(DType::F16)),
                tallow_graph::Kernel::Gather(k) => k.output == DType::F16,
                tallow_graph::Kernel::Random(k) => k.dtype == DType::F16,
                _ => false,
            };
            for implementation in library::implementations(&kernel, &words, &target) {
                let source = library::shader(&kernel, implementation.id, &target).unwrap().source;
                assert_eq!(source.contains("enable f16;"), source.contains("f16>"), "{name}");
                assert!(f16 || !source.contains("enable f16;"), "{name}");
                if half && f16 {
                    assert!(source.contains("enable f16;"), "{name}");
                    assert!(!source.contains("atomicAnd("), "{name}");
                    native += 1;
                } else if half {
                    packed += 1;
                }
            }
        }
    }
    assert!(native > 50 && native == packed, "{native} native, {packed} packed");
}
