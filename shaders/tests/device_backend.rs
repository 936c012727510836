//! The host side on a real (software) device: memory, order, faults, errors, and what a warm run may create.
#![cfg(not(target_arch = "wasm32"))]

mod device_support;

use device_support::*;
use std::sync::Arc;
use tallow_graph::{Backend, DType, Error, HostBytes, Program};
use tallow_wgpu::host::{Options, Tier, WgpuBuffer};

#[test]
fn bytes_of_any_size_come_back() {
    let Some(backend) = open(options()) else { return };
    for size in [0usize, 1, 3, 4, 5, 255, 256, 4097, (1 << 20) + 1, (9 << 20) + 7, (20 << 20) + 2] {
        let bytes: Vec<u8> = (0..size).map(|i| (i * 31 + i / 251) as u8).collect();
        let buffer = backend.allocate(size as u64).unwrap();
        assert_eq!(buffer.bytes(), size as u64);
        backend.write(&buffer, 0, &bytes).unwrap();
        let back = pollster::block_on(backend.read(&buffer, 0..size as u64)).unwrap();
        assert!(back == bytes, "{size} bytes");
        if size > 300 {
            let part = pollster::block_on(backend.read(&buffer, 13..270)).unwrap();
            assert_eq!(part, &bytes[13..270]);
        }
    }
}

#[test]
fn writes_beyond_a_buffer_and_reads_beyond_it_are_errors() {
    let Some(backend) = open(options()) else { return };
    let buffer = backend.allocate(10).unwrap();
    assert!(backend.write(&buffer, 8, &[0; 3]).is_err());
    assert!(backend.write(&buffer, 2, &[0; 2]).is_err());
    assert!(backend.write(&buffer, u64::MAX - 3, &[0; 8]).is_err());
    assert!(pollster::block_on(backend.read(&buffer, 4..11)).is_err());
    backend.write(&buffer, 8, &[7; 2]).unwrap();
}

#[test]
fn a_write_after_a_submit_does_not_reach_back() {
    let Some(backend) = open(options()) else { return };
    let n = 50_000;
    let a = upload(&backend, &vec![1.0; n]);
    let b = upload(&backend, &vec![2.0; n]);
    let out = backend.allocate(4 * n as u64).unwrap();
    let mut builder = Builder::default();
    builder.step(&add(), &[0, 1], 2, None, &[n as i64], &[0.5]);
    let buffers = [Arc::clone(&a), b, Arc::clone(&out)];
    builder.run(&backend, &buffers).unwrap();
    let later = vec![9f32; n].iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    backend.write(&a, 0, &later).unwrap();
    assert_eq!(download(&backend, &out).unwrap(), vec![3.5; n]);
    builder.run(&backend, &buffers).unwrap();
    assert_eq!(download(&backend, &out).unwrap(), vec![11.5; n]);
}

#[test]
fn a_dropped_buffer_is_reused_in_order() {
    let Some(backend) = open(options()) else { return };
    let n = 4096usize;
    let out = backend.allocate(4 * n as u64).unwrap();
    let a = upload(&backend, &vec![1.0; n]);
    let zero = upload(&backend, &vec![0.0; n]);
    let mut builder = Builder::default();
    builder.step(&add(), &[0, 1], 2, None, &[n as i64], &[0.0]);
    builder.run(&backend, &[Arc::clone(&a), Arc::clone(&zero), Arc::clone(&out)]).unwrap();
    let before = backend.counters();
    drop(a);
    // The same memory, overwritten while the run may still be under way.
    let b = upload(&backend, &vec![5.0; n]);
    assert_eq!(backend.counters().buffers, before.buffers);
    assert_eq!(backend.counters().bytes, before.bytes);
    assert_eq!(download(&backend, &out).unwrap(), vec![1.0; n]);
    assert_eq!(download(&backend, &b).unwrap(), vec![5.0; n]);

    drop((b, zero, out));
    backend.trim();
    let after = backend.counters();
    assert!(after.bytes < before.bytes, "{after:?}");
    assert_eq!(after.peak_bytes.max(before.peak_bytes), after.peak_bytes);
}

#[test]
fn steps_run_in_order_through_scratch_and_several_entry_points() {
    let Some(backend) = open(options()) else { return };
    let n = 1000usize;
    let bytes = 4 * n as u64;
    let buffers: Vec<_> = (0..4).map(|_| backend.allocate(bytes).unwrap()).collect();
    let mut builder = Builder::default();
    builder
        .step(&ramp(), &[], 0, None, &[n as i64], &[3.0])
        .step(&two_steps(), &[0], 1, Some(3), &[n as i64], &[])
        .step(&add(), &[0, 1], 2, None, &[n as i64], &[0.25])
        // An empty step is skipped.
        .step(&add(), &[0, 1], 3, None, &[0], &[0.0]);
    builder.run(&backend, &buffers).unwrap();
    let expected: Vec<f32> = (0..n).map(|i| 3.0 * i as f32 + (6.0 * i as f32 + 1.0) + 0.25).collect();
    assert_eq!(download(&backend, &buffers[2]).unwrap(), expected);
    assert_eq!(backend.counters().dispatches, 4);
}

#[test]
fn a_long_program_spans_several_arena_chunks() {
    let Some(backend) = open(options()) else { return };
    let n = 16usize;
    let buffers: Vec<_> = (0..3).map(|_| backend.allocate(4 * n as u64).unwrap()).collect();
    let mut builder = Builder::default();
    builder.step(&ramp(), &[], 0, None, &[n as i64], &[0.0]).step(&ramp(), &[], 1, None, &[n as i64], &[0.0]);
    let kernel = add();
    for i in 0..10_000u32 {
        // The running sum alternates between buffers 1 and 2.
        let (from, to) = if i % 2 == 0 { (1, 2) } else { (2, 1) };
        builder.step(&kernel, &[0, from], to, None, &[n as i64], &[f64::from(i % 7)]);
    }
    let program = builder.program(3);
    let prepared = backend.prepare(&program).unwrap();
    let sum: u32 = (0..10_000).map(|i| i % 7).sum();
    for _ in 0..2 {
        builder.submit(&backend, &program, &*prepared, &buffers).unwrap();
        assert_eq!(download(&backend, &buffers[1]).unwrap(), vec![sum as f32; n]);
    }
    assert_eq!(backend.counters().pipelines, 2);
}

#[test]
fn a_fault_is_reported_once_with_its_kernel_and_index() {
    let Some(backend) = open(options()) else { return };
    let source = upload(&backend, &[1.0, 2.0, 3.0]);
    let good = upload_words(&backend, &[2, 0]);
    let bad = upload_words(&backend, &[1, 77]);
    let negative = upload_words(&backend, &[u32::MAX, 1]);
    let out = backend.allocate(8).unwrap();
    let mut builder = Builder::default();
    builder.step(&gather(), &[0, 1], 2, None, &[2, 3], &[]);
    let run = |ids| builder.run(&backend, &[Arc::clone(&source), Arc::clone(ids), Arc::clone(&out)]).unwrap();

    run(&good);
    assert_eq!(download(&backend, &out).unwrap(), [3.0, 1.0]);
    run(&bad);
    match download(&backend, &out) {
        Err(Error::Fault { op, message }) => {
            assert_eq!(op, "gather");
            assert!(message.contains("77"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    // Told once; the zeros that took the row's place can be read now.
    assert_eq!(download(&backend, &out).unwrap(), [2.0, 0.0]);
    run(&negative);
    let message = download(&backend, &source).unwrap_err().to_string();
    assert!(message.contains("-1"), "{message}");
    run(&good);
    assert_eq!(download(&backend, &out).unwrap(), [3.0, 1.0]);
}

#[test]
fn every_read_under_way_sees_the_fault_and_later_ones_do_not() {
    let Some(backend) = open(options()) else { return };
    let source = upload(&backend, &[1.0]);
    let bad = upload_words(&backend, &[5]);
    let out = backend.allocate(4).unwrap();
    let mut builder = Builder::default();
    builder.step(&gather(), &[0, 1], 2, None, &[1, 1], &[]);
    builder.run(&backend, &[source, bad, Arc::clone(&out)]).unwrap();
    let reads: Vec<_> = (0..3).map(|_| backend.read(&out, 0..4)).collect();
    for read in reads.into_iter().rev() {
        assert!(matches!(pollster::block_on(read), Err(Error::Fault { .. })));
    }
    assert_eq!(download(&backend, &out).unwrap(), [0.0]);
}

#[test]
fn sizes_beyond_the_limits_name_the_limit() {
    let Some(backend) = open(options()) else { return };
    for bytes in [u64::MAX, 1 << 50] {
        let Err(error) = backend.allocate(bytes) else { panic!("{bytes} bytes were allocated") };
        let message = error.to_string();
        assert!(
            message.contains("max_storage_buffer_binding_size") || message.contains("max_buffer_size"),
            "{message}"
        );
    }
    // The device is unharmed.
    assert_eq!(download(&backend, &upload(&backend, &[4.0])).unwrap(), [4.0]);
}

#[test]
fn a_memory_limit_is_kept_and_free_memory_makes_room() {
    let Some(backend) = open(Options { memory_limit: Some(8 << 20), ..options() }) else { return };
    let first = backend.allocate(5 << 20).unwrap();
    assert!(matches!(backend.allocate(4 << 20), Err(Error::OutOfMemory { .. })));
    drop(first);
    // The pool still holds the first; it has to go.
    let second = backend.allocate(7 << 20).unwrap();
    assert!(backend.counters().bytes <= 8 << 20);
    backend.write(&second, 0, &[1; 16]).unwrap();
    assert_eq!(pollster::block_on(backend.read(&second, 0..16)).unwrap(), [1; 16]);
}

#[test]
fn a_wrong_shader_is_an_error_that_names_it() {
    let Some(backend) = open(options()) else { return };
    let mut builder = Builder::default();
    builder.step(&broken(), &[0], 1, None, &[1], &[]);
    let Err(error) = backend.prepare(&builder.program(2)) else { panic!("a wrong shader compiled") };
    let message = error.to_string();
    assert!(message.contains("reduce") && message.contains("nothing"), "{message}");
    assert_eq!(download(&backend, &upload(&backend, &[4.0])).unwrap(), [4.0]);
}

#[test]
fn a_step_that_does_not_fit_its_shader_is_refused() {
    let Some(backend) = open(options()) else { return };
    let mut builder = Builder::default();
    builder.step(&add(), &[0], 1, None, &[1], &[0.0]);
    assert!(backend.prepare(&builder.program(2)).is_err());
    let mut builder = Builder::default();
    builder.step(&add(), &[0, 7], 1, None, &[1], &[0.0]);
    assert!(backend.prepare(&builder.program(2)).is_err());
}

#[test]
fn buffers_of_another_device_are_refused() {
    let (Some(one), Some(other)) = (open(options()), open(options())) else { return };
    let buffer = other.allocate(16).unwrap();
    assert!(one.write(&buffer, 0, &[0; 4]).is_err());
    assert!(pollster::block_on(one.read(&buffer, 0..4)).is_err());
}

#[test]
fn a_warm_run_creates_nothing() {
    let Some(backend) = open(options()) else { return };
    let n = 256usize;
    let bytes = 4 * n as u64;
    let mut builder = Builder::default();
    builder
        .step(&ramp(), &[], 0, None, &[n as i64], &[1.0])
        .step(&two_steps(), &[0], 1, Some(3), &[n as i64], &[])
        .step(&add(), &[0, 1], 2, None, &[n as i64], &[1.0]);
    let program: Program = builder.program(4);
    let prepared = backend.prepare(&program).unwrap();
    let step = |order: usize| {
        // As an engine does: fresh handles each time, the pool's memory, given back in any order.
        let mut buffers: Vec<_> = (0..4).map(|_| backend.allocate(bytes).unwrap()).collect();
        builder.submit(&backend, &program, &*prepared, &buffers).unwrap();
        let result = download(&backend, &buffers[2]).unwrap();
        buffers.rotate_left(order);
        buffers.swap(0, order % 3);
        result
    };
    let first = step(0);
    let before = backend.counters();
    assert_eq!(step(1), first);
    for order in 2..4 {
        assert_eq!(step(order), first);
        assert_eq!(backend.counters().bind_groups, before.bind_groups);
    }
    let before = backend.counters();
    assert_eq!(step(0), first);
    let after = backend.counters();
    assert_eq!(
        (after.pipelines, after.bind_groups, after.buffers, after.bytes),
        (before.pipelines, before.bind_groups, before.buffers, before.bytes)
    );
    assert_eq!(after.dispatches, before.dispatches + 4);
    assert_eq!(after.submits, before.submits + 2);
    // A second program of the same kernels shares their pipelines.
    backend.prepare(&program).unwrap();
    assert_eq!(backend.counters().pipelines, after.pipelines);
    // Another kernel does not, even if its shader is the same text.
    builder.step(&add_variant(3), &[0, 1], 2, None, &[n as i64], &[1.0]);
    backend.prepare(&builder.program(4)).unwrap();
    assert_eq!(backend.counters().pipelines, after.pipelines + 1);
}

#[test]
fn two_threads_submit_and_read() {
    let Some(backend) = open(options()) else { return };
    let backend = &backend;
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                let n = 3000usize;
                for round in 0..20 {
                    let value = (thread * 100 + round) as f32;
                    let a = upload(backend, &vec![value; n]);
                    let b = upload(backend, &vec![0.5; n]);
                    let out = backend.allocate(4 * n as u64).unwrap();
                    let mut builder = Builder::default();
                    builder.step(&add(), &[0, 1], 2, None, &[n as i64], &[1.0]);
                    builder.run(backend, &[a, b, Arc::clone(&out)]).unwrap();
                    assert_eq!(download(backend, &out).unwrap(), vec![value + 1.5; n]);
                    pollster::block_on(backend.ready()).unwrap();
                }
            });
        }
    });
}

#[test]
fn many_writes_between_submits_arrive() {
    let Some(backend) = open(options()) else { return };
    let n = 1000u32;
    let buffer = backend.allocate(u64::from(n) * 4).unwrap();
    for i in 0..n {
        backend.write(&buffer, u64::from(i) * 4, &i.to_le_bytes()).unwrap();
    }
    let back = pollster::block_on(backend.read(&buffer, 0..u64::from(n) * 4)).unwrap();
    assert!(back.chunks_exact(4).zip(0u32..).all(|(word, i)| word == i.to_le_bytes()));
    assert!(backend.counters().submits >= u64::from(n) / 32);
}

#[test]
fn a_lost_device_says_so_at_every_call() {
    let Some(backend) = open(options()) else { return };
    let buffer = upload(&backend, &[1.0]);
    backend.wgpu().0.destroy();
    // The loss is told when the device is next driven.
    let first = download(&backend, &buffer);
    assert!(first.is_err(), "{first:?}");
    let second = download(&backend, &buffer);
    assert!(matches!(second, Err(Error::DeviceLost { .. })), "{first:?}, {second:?}");
    assert!(matches!(backend.allocate(16), Err(Error::DeviceLost { .. })));
    assert!(matches!(backend.write(&buffer, 0, &[0; 4]), Err(Error::DeviceLost { .. })));
}

#[test]
fn an_error_that_nobody_asked_about_stops_all_reads() {
    let Some(backend) = open(options()) else { return };
    let buffer = upload(&backend, &[1.0]);
    assert_eq!(download(&backend, &buffer).unwrap(), [1.0]);
    let (_, queue) = backend.wgpu();
    let Some(raw) = buffer.as_any().downcast_ref::<WgpuBuffer>().and_then(WgpuBuffer::wgpu) else {
        panic!("no buffer")
    };
    // An upload beyond the end, behind the backend's back: nothing of it arrives, so nothing may be trusted.
    queue.write_buffer(raw, raw.size(), &[0; 8]);
    let message = download(&backend, &buffer).unwrap_err().to_string();
    assert!(message.contains("open it again"), "{message}");
}

#[test]
fn reads_that_are_never_awaited_harm_nothing() {
    let Some(backend) = open(options()) else { return };
    let buffer = upload(&backend, &[1.0, 2.0]);
    for _ in 0..20 {
        drop(backend.read(&buffer, 0..8));
    }
    let kept = backend.read(&buffer, 4..8);
    drop(buffer);
    assert_eq!(pollster::block_on(kept).unwrap(), 2f32.to_le_bytes());
}

#[test]
fn lower_tiers_strictness_and_unchecked_shaders_compute_the_same() {
    let run = |options: Options| {
        let backend = open(options)?;
        let n = 500usize;
        let buffers: Vec<_> = (0..3).map(|_| backend.allocate(4 * n as u64).unwrap()).collect();
        let mut builder = Builder::default();
        builder.step(&ramp(), &[], 0, None, &[n as i64], &[2.0]).step(&two_steps(), &[0], 1, Some(2), &[n as i64], &[]);
        builder.run(&backend, &buffers).unwrap();
        Some((backend.target().clone(), download(&backend, &buffers[1]).unwrap()))
    };
    let Some((_, expected)) = run(options()) else { return };
    let (bare, values) = run(Options { tier: Tier::T0, ..options() }).unwrap();
    assert!(!bare.f16 && bare.subgroups.is_none() && !bare.packed_dot);
    assert_eq!(values, expected);
    assert_eq!(run(Options { strict: true, ..options() }).unwrap().1, expected);
    assert_eq!(run(Options { checks: false, ..options() }).unwrap().1, expected);
}

#[test]
fn packed_weights_stream_in_and_come_back() {
    let Some(backend) = open(options()) else { return };
    for dtype in [DType::Q4_0, DType::Q8_0, DType::Q6K] {
        let (rows, cols) = (70usize, 512usize);
        let row = dtype.bytes_for(cols).unwrap();
        let bytes: Vec<u8> = (0..rows * row).map(|i| (i * 7 + i / 13) as u8).collect();
        let source: HostBytes = Arc::new([vec![0u8; 3], bytes.clone()].concat());
        let whole = backend.pack(dtype, rows, cols, source, 3..3 + bytes.len()).unwrap();
        let back = pollster::block_on(backend.unpack(&whole, dtype, rows, cols)).unwrap();
        assert!(back == bytes, "{dtype}");

        let streamed = backend.allocate(backend.packed_bytes(dtype, rows, cols).unwrap()).unwrap();
        for (first, part) in [(64, &bytes[64 * row..]), (0, &bytes[..32 * row]), (32, &bytes[32 * row..64 * row])] {
            backend.pack_rows(&streamed, dtype, rows, cols, first, part).unwrap();
        }
        let back = pollster::block_on(backend.unpack(&streamed, dtype, rows, cols)).unwrap();
        assert!(back == bytes, "{dtype} in parts");
    }
    let small = backend.allocate(16).unwrap();
    assert!(backend.pack_rows(&small, DType::Q8_0, 4, 64, 0, &[0; 68]).is_err());
}

#[test]
fn memory_given_back_during_a_run_waits_for_it() {
    let Some(backend) = open(options()) else { return };
    let n = 200_000usize;
    let out = backend.allocate(4 * n as u64).unwrap();
    let a = upload(&backend, &vec![1.5; n]);
    let b = upload(&backend, &vec![2.0; n]);
    let mut builder = Builder::default();
    builder.step(&add(), &[0, 1], 2, None, &[n as i64], &[0.0]);
    let program = builder.program(3);
    let prepared = backend.prepare(&program).unwrap();
    let inputs = [a, b, Arc::clone(&out)];
    builder.submit(&backend, &program, &*prepared, &inputs).unwrap();
    drop(inputs);
    // Written, never submitted, freed.
    drop(upload(&backend, &[3.0; 100]));
    backend.trim();
    let read = backend.read(&out, 0..out.bytes());
    drop(out);
    backend.trim();
    let bytes = pollster::block_on(read).unwrap();
    assert!(bytes.chunks_exact(4).all(|word| word == 3.5f32.to_le_bytes()));

    // The program runs on with new buffers: bind groups of the old ones are not used.
    let a = upload(&backend, &vec![1.0; n]);
    let out = backend.allocate(4 * n as u64).unwrap();
    builder.submit(&backend, &program, &*prepared, &[Arc::clone(&a), a, Arc::clone(&out)]).unwrap();
    assert_eq!(download(&backend, &out).unwrap(), vec![2.0; n]);
    drop((out, prepared));
    backend.trim();
    let left = backend.counters().bytes;
    assert!(left < 2 << 20, "{left} bytes are still live");
}
