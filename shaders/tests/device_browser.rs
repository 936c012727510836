//! The host side in a real browser: nothing blocks there, and errors come late.
#![cfg(target_arch = "wasm32")]

#[allow(unused_imports, reason = "the native helpers are left out")]
mod device_support;

use device_support::*;
use tallow_graph::{Backend, Buffer, Error};
use tallow_wgpu::host::{WgpuBackend, adapters};
use wasm_bindgen_test::{console_log, wasm_bindgen_test, wasm_bindgen_test_configure};

wasm_bindgen_test_configure!(run_in_browser);

async fn floats(backend: &WgpuBackend, buffer: &Buffer) -> Result<Vec<f32>, Error> {
    let bytes = backend.read(buffer, 0..buffer.bytes()).await?;
    Ok(bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect())
}

async fn open_browser() -> WgpuBackend {
    let found = adapters().await;
    console_log!("{found:?}");
    assert_eq!(found.len(), 1, "this browser has no WebGPU");
    let backend = WgpuBackend::open(0, options()).await.unwrap();
    console_log!("{:?}", backend.info());
    backend
}

#[wasm_bindgen_test]
async fn programs_run_and_come_back() {
    let backend = open_browser().await;
    assert!(!backend.info().can_block);
    let n = 3001usize;
    let buffers: Vec<_> = (0..4).map(|_| backend.allocate(4 * n as u64).unwrap()).collect();
    let mut builder = Builder::default();
    builder
        .step(&ramp(), &[], 0, None, &[n as i64], &[3.0])
        .step(&two_steps(), &[0], 1, Some(3), &[n as i64], &[])
        .step(&add(), &[0, 1], 2, None, &[n as i64], &[0.25]);
    let expected: Vec<f32> = (0..n).map(|i| 3.0 * i as f32 + (6.0 * i as f32 + 1.0) + 0.25).collect();
    let program = builder.program(4);
    let prepared = backend.prepare(&program).unwrap();
    builder.submit(&backend, &program, &*prepared, &buffers).unwrap();
    assert_eq!(floats(&backend, &buffers[2]).await.unwrap(), expected);
    let before = backend.counters();
    builder.submit(&backend, &program, &*prepared, &buffers).unwrap();
    assert_eq!(floats(&backend, &buffers[2]).await.unwrap(), expected);
    let after = backend.counters();
    assert_eq!((after.bind_groups, after.buffers), (before.bind_groups, before.buffers));
    backend.ready().await.unwrap();
}

#[wasm_bindgen_test]
async fn odd_bytes_come_back() {
    let backend = open_browser().await;
    for size in [0usize, 3, 257, (9 << 20) + 1] {
        let bytes: Vec<u8> = (0..size).map(|i| (i * 31 + i / 251) as u8).collect();
        let buffer = backend.allocate(size as u64).unwrap();
        backend.write(&buffer, 0, &bytes).unwrap();
        assert!(backend.read(&buffer, 0..size as u64).await.unwrap() == bytes, "{size}");
    }
}

#[wasm_bindgen_test]
async fn faults_arrive_with_the_read() {
    let backend = open_browser().await;
    let source = upload(&backend, &[1.0]);
    let bad = upload_words(&backend, &[5]);
    let out = backend.allocate(4).unwrap();
    let mut builder = Builder::default();
    builder.step(&gather(), &[0, 1], 2, None, &[1, 1], &[]);
    builder.run(&backend, &[source, bad, out.clone()]).unwrap();
    assert!(matches!(floats(&backend, &out).await, Err(Error::Fault { .. })));
    assert_eq!(floats(&backend, &out).await.unwrap(), [0.0]);
}

#[wasm_bindgen_test]
async fn a_wrong_shader_is_told_by_the_next_read() {
    let backend = open_browser().await;
    let mut builder = Builder::default();
    builder.step(&broken(), &[0], 1, None, &[1], &[]);
    let buffers = [upload(&backend, &[1.0]), backend.allocate(4).unwrap()];
    let prepared = builder.run(&backend, &buffers);
    let message = match prepared {
        Err(error) => error.to_string(),
        Ok(()) => floats(&backend, &buffers[1]).await.unwrap_err().to_string(),
    };
    console_log!("{message}");
    assert!(message.contains("reduce") && message.contains("nothing"), "{message}");
}

#[wasm_bindgen_test]
async fn memory_that_is_not_there_is_an_error_not_wrong_numbers() {
    let backend = open_browser().await;
    let most = backend.info().limits.iter().find(|(name, _)| *name == "max_storage_buffer_binding_size").unwrap().1;
    let mut kept = Vec::new();
    let mut failed = None;
    // A software device may have room for a few; 64 of them nobody has.
    for _ in 0..64 {
        match backend.allocate(most) {
            Ok(buffer) => kept.push(buffer),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
        if let Err(error) = backend.ready().await {
            failed = Some(error);
            break;
        }
    }
    console_log!("{} buffers of {most} bytes, then {failed:?}", kept.len());
    assert!(failed.is_none_or(|error| matches!(error, Error::OutOfMemory { .. } | Error::DeviceLost { .. })));
}
