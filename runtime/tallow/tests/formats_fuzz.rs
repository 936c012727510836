//! Ten thousand damaged headers of each format (and damaged npz archives and PyTorch files): no panic, and never more memory than eight times the file and 1 MiB,
//! by an allocator that counts. A binary of its own, so that nothing else is counted; one test at a time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tallow::formats::gguf::{Gguf, HeaderReader, OwnedValue, ValueType, Writer};
use tallow::formats::{Bytes, SafeTensors};
use tallow_graph::DType;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Counts live bytes and their peak. `realloc` is the trait's own: a new block beside the old one, both counted.
struct Counting;

// SAFETY: every call goes to `System` with the same arguments; the counters touch no memory of the allocations.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), SeqCst) + layout.size();
        PEAK.fetch_max(now, SeqCst);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), SeqCst);
        // SAFETY: the caller keeps `dealloc`'s contract, and the block came from `System`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes that `run` held at once, beyond what was held before it.
fn peak(run: impl FnOnce()) -> usize {
    let before = NOW.load(SeqCst);
    PEAK.store(before, SeqCst);
    run();
    PEAK.load(SeqCst) - before
}

fn allowed(file: usize) -> usize {
    8 * file + (1 << 20)
}

/// splitmix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Damages a copy of `file` in one to four places of its first `header` bytes.
fn damage(rng: &mut Rng, file: &[u8], header: usize) -> Vec<u8> {
    const EXTREMES: [u64; 12] =
        [0, 1, 5, 0x7f, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 32, 1 << 60, i64::MAX as u64, 1 << 63, u64::MAX];
    let mut out = file.to_vec();
    for _ in 0..=rng.below(4) {
        let at = rng.below(header.min(out.len()));
        let extreme = EXTREMES[rng.below(EXTREMES.len())];
        match rng.below(7) {
            0 => {
                if let Some(byte) = out.get_mut(at) {
                    *byte ^= 1 << rng.below(8);
                }
            }
            1 => out.truncate(at),
            2 => overwrite(&mut out, at, &extreme.to_le_bytes()),
            3 => overwrite(&mut out, at, &(extreme as u32).to_le_bytes()),
            // The counts, where they are.
            4 => overwrite(&mut out, 8 * (1 + rng.below(2)), &extreme.to_le_bytes()),
            5 => {
                let random = rng.next();
                overwrite(&mut out, at, &random.to_le_bytes()[..1 + rng.below(8)]);
            }
            // A piece of the header again, or left out.
            _ => {
                let end = (at + rng.below(64)).min(out.len());
                if rng.below(2) == 0 {
                    let piece = out[at.min(end)..end].to_vec();
                    out.splice(at.min(end)..at.min(end), piece);
                } else {
                    out.drain(at.min(end)..end);
                }
            }
        }
    }
    out
}

fn overwrite(out: &mut [u8], at: usize, bytes: &[u8]) {
    for (to, from) in out.iter_mut().skip(at).zip(bytes) {
        *to = *from;
    }
}

/// A file like a model's, with `tokens` tokens and `layers` layers.
fn model(tokens: usize, layers: usize) -> Vec<u8> {
    let mut writer = Writer::new()
        .metadata("general.architecture", "llama")
        .metadata("general.alignment", 32u32)
        .metadata("llama.block_count", layers as u32)
        .metadata("llama.rope.freq_base", 10_000.0f32)
        .metadata("tokenizer.ggml.add_bos_token", true)
        .metadata("tokenizer.ggml.tokens", (0..tokens).map(|i| format!("t{i}")).collect::<Vec<_>>())
        .metadata("tokenizer.ggml.scores", vec![0.5f32; tokens])
        .metadata("nested", (ValueType::Array, vec![OwnedValue::from(vec![1u32, 2]), vec!["a", "b"].into()]));
    for i in 0..layers {
        writer = writer.tensor(format!("blk.{i}.attn_norm.weight"), DType::F32, &[8], vec![0; 32]).tensor(
            format!("blk.{i}.attn_q.weight"),
            DType::Q4_1,
            &[2, 32],
            vec![0; 40],
        );
    }
    writer.to_bytes().unwrap()
}

/// Reads a file whole and in pieces, and touches all that was read.
fn read_gguf(file: &Bytes, rng: &mut Rng) -> bool {
    let whole = Gguf::parse(file.clone());
    if let Ok(gguf) = &whole {
        for (key, value) in gguf.metadata().iter() {
            let found = gguf.metadata().get(key).unwrap();
            assert_eq!((found.value_type(), found.to_string()), (value.value_type(), value.to_string()));
            let _ = gguf.metadata().get_u32(key);
            if let Ok(strings) = gguf.metadata().get_strings(key) {
                assert_eq!(strings.len(), strings.map(str::len).count());
            }
        }
        for info in gguf.tensors().iter() {
            assert_eq!(gguf.tensor_bytes(info.name).unwrap().len() as u64, info.bytes);
        }
    }
    let ok = whole.is_ok();
    drop(whole);
    let mut reader = HeaderReader::new((rng.below(2) == 0).then_some(file.len() as u64));
    let step = 1 + rng.below(file.len());
    let mut header = None;
    for chunk in file.chunks(step) {
        match reader.push(chunk) {
            Ok(None) => {}
            Ok(some) => {
                header = some;
                break;
            }
            Err(error) => {
                assert!(error.to_string().len() < 2000);
                break;
            }
        }
    }
    let pieces = header.is_some_and(|header| header.check_size(file.len() as u64).is_ok());
    assert_eq!(ok, pieces, "whole and in pieces, a header is the same");
    ok
}

#[test]
fn damaged_gguf_headers_neither_panic_nor_take_memory() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let bases = [model(3, 1), model(40, 3), model(0, 0), model(3000, 8)];
    let mut rng = Rng(2);
    let (mut sound, mut worst) = (0, 0);
    for round in 0..10_000 {
        let base = &bases[if round % 20 == 0 { 3 } else { round % 3 }];
        let header = Gguf::parse(Bytes::from(base.as_slice())).unwrap().header_bytes() as usize;
        let file = Bytes::from(damage(&mut rng, base, header));
        let used = peak(|| sound += usize::from(read_gguf(&file, &mut rng)));
        assert!(used <= allowed(file.len()), "round {round}: {used} bytes for a file of {}", file.len());
        worst = worst.max(used);
    }
    // Most damage must be seen; damage inside a string or a number cannot be.
    assert!((100..5000).contains(&sound), "{sound} of 10000 damaged files were accepted");
    println!("{sound} accepted, at most {worst} bytes");
}

/// Headers as dense as the format allows, so large that the allowance of 1 MiB counts for little.
#[test]
fn dense_gguf_headers_stay_within_the_bound() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    const N: u64 = 400_000;
    let head = |tensors: u64, entries: u64| {
        [&b"GGUF"[..], &3u32.to_le_bytes(), &tensors.to_le_bytes(), &entries.to_le_bytes()].concat()
    };
    let name = |out: &mut Vec<u8>, i: u64| {
        out.extend(3u64.to_le_bytes());
        out.extend((0..3).map(|shift| 32 + ((i >> (6 * shift)) & 63) as u8));
    };
    let n = N.min(64 * 64 * 64);
    let mut keys = head(0, n);
    let mut tensors = head(n, 0);
    for i in 0..n {
        name(&mut keys, i);
        keys.extend([0, 0, 0, 0, 1]);
        name(&mut tensors, i);
        tensors.extend([0; 16]);
        let at = tensors.len() - 8;
        tensors[at..].copy_from_slice(&(32 * i).to_le_bytes());
    }
    let mut scalars = tensors.clone();
    scalars.resize(tensors.len().next_multiple_of(32) + 32 * n as usize, 0);
    let one = |kind: u32, element: u32, count: u64, body: &[u8]| {
        let mut out = head(0, 1);
        out.extend(1u64.to_le_bytes());
        out.push(b'k');
        out.extend(kind.to_le_bytes());
        out.extend(element.to_le_bytes());
        out.extend(count.to_le_bytes());
        out.extend(body);
        out
    };
    let strings = one(9, 8, N, &vec![0; 8 * N as usize]);
    let bytes = one(9, 0, 10 * N, &vec![0; 10 * N as usize]);
    let arrays = one(9, 9, N, &vec![0; 12 * N as usize]);
    // Tensors past the end: refused, but only after the tables were made.
    for (file, sound) in
        [(keys, true), (tensors, false), (scalars, true), (strings, true), (bytes, true), (arrays, true)]
    {
        let file = Bytes::from(file);
        let used = peak(|| assert_eq!(Gguf::parse(file.clone()).is_ok(), sound));
        assert!(used <= 2 * file.len() + (64 << 10), "{used} bytes for a file of {}", file.len());
        for size in [None, Some(file.len() as u64)] {
            let used = peak(|| {
                let mut reader = HeaderReader::new(size);
                let end = file.chunks(4096).find_map(|chunk| reader.push(chunk).transpose());
                assert_eq!(end.unwrap().and_then(|h| h.check_size(file.len() as u64)).is_ok(), sound);
            });
            assert!(used <= allowed(file.len()), "{used} bytes for a stream of {}", file.len());
        }
    }
}

fn safetensors_model(layers: usize) -> (Vec<u8>, usize) {
    let mut json = String::from(r#"{"__metadata__":{"format":"pt","note":"\u0041 \"b\""}"#);
    let mut at = 0;
    for i in 0..layers {
        json += &format!(
            r#","model.layers.{i}.weight":{{"dtype":"BF16","shape":[4,8],"data_offsets":[{at},{}]}}"#,
            at + 64
        );
        at += 64;
    }
    json.push('}');
    let mut out = (json.len() as u64).to_le_bytes().to_vec();
    out.extend(json.bytes());
    let header = out.len();
    out.resize(header + at, 0);
    (out, header)
}

fn read_safetensors(file: &Bytes) -> bool {
    let Ok(read) = SafeTensors::parse(file.clone()) else { return false };
    for info in read.tensors() {
        assert_eq!(read.get(info.name()), Some(info));
        assert!(read.tensor(info.name()).is_err() || info.range().end <= file.len());
    }
    true
}

#[test]
fn damaged_safetensors_headers_neither_panic_nor_take_memory() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let bases = [safetensors_model(1), safetensors_model(5), safetensors_model(0), safetensors_model(300)];
    let mut rng = Rng(3);
    let mut sound = 0;
    for round in 0..10_000 {
        let (base, header) = &bases[if round % 20 == 0 { 3 } else { round % 3 }];
        let mut bytes = damage(&mut rng, base, *header);
        // Half of them with the right length in front, so that the damage reaches the JSON parser.
        if rng.below(2) == 0 && bytes.len() > 8 {
            let data = base.len() - header;
            let len = bytes.len().saturating_sub(8 + data) as u64;
            overwrite(&mut bytes, 0, &len.to_le_bytes());
        }
        let file = Bytes::from(bytes);
        let used = peak(|| sound += usize::from(read_safetensors(&file)));
        assert!(used <= allowed(file.len()), "round {round}: {used} bytes for a file of {}", file.len());
    }
    assert!((100..5000).contains(&sound), "{sound} of 10000 damaged files were accepted");
    println!("{sound} accepted");
}

#[test]
fn dense_safetensors_headers_stay_within_the_bound() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let file = |json: String| {
        let mut out = (json.len() as u64).to_le_bytes().to_vec();
        out.extend(json.bytes());
        Bytes::from(out)
    };
    let list = |n: usize, entry: &dyn Fn(usize) -> String| (0..n).map(entry).collect::<Vec<_>>().join(",");
    let tensors = list(40_000, &|i| format!(r#""{i:x}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#));
    let texts = list(200_000, &|i| format!(r#""{i:x}":"""#));
    let zeros = "0,".repeat(1_000_000);
    for (json, sound) in [
        (format!("{{{tensors}}}"), true),
        (format!(r#"{{"__metadata__":{{{texts}}}}}"#), true),
        (format!(r#"{{"__metadata__":{{"x":"{}"}}}}"#, r"\n".repeat(1_000_000)), true),
        (format!(r#"{{"t":{{"shape":[{zeros}0],"dtype":"U8","data_offsets":[0,0]}}}}"#), false),
        (format!(r#"{{"t":{{"x":[{zeros}0],"shape":[0],"dtype":"U8","data_offsets":[0,0]}}}}"#), true),
        (format!(r#"{{"{}":{{"shape":[0],"dtype":"U8","data_offsets":[0,0]}}}}"#, "n".repeat(2_000_000)), true),
    ] {
        let file = file(json);
        let used = peak(|| assert_eq!(SafeTensors::parse(file.clone()).is_ok(), sound));
        assert!(used <= allowed(file.len()), "{used} bytes for a file of {}", file.len());
        println!("{:.2} x", used as f64 / file.len() as f64);
    }
}

/// Loads an npy file; whether that worked.
fn read_npy(bytes: &[u8]) -> bool {
    let Ok(x) = tallow::npy::load_buffer(bytes, &tallow::Device::Cpu) else { return false };
    assert!(x.elem_count() * x.dtype().size_in_bytes() <= bytes.len());
    true
}

/// Loads each array of an npz file; whether that worked.
fn read_npz(file: &Bytes) -> bool {
    let Ok(archive) = tallow::npy::NpzTensors::parse(file.clone()) else { return false };
    archive.names().iter().fold(true, |sound, name| {
        let described = archive.get_shape_and_dtype(name);
        match archive.get(name) {
            Ok(found) => {
                let found = found.expect("the archive names it");
                assert_eq!(described.expect("it was read"), (found.shape().clone(), found.dtype()));
                sound
            }
            Err(error) => {
                assert!(error.to_string().len() < 2000);
                false
            }
        }
    })
}

#[test]
fn damaged_npy_and_npz_files_neither_panic_nor_take_memory() -> tallow::Result<()> {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let cpu = &tallow::Device::Cpu;
    let arrays = [
        ("matrix", tallow::Tensor::arange(0f32, 12., cpu)?.reshape((3, 4))?),
        ("empty", tallow::Tensor::zeros((0, 2), DType::I64, cpu)?),
        ("scalar", tallow::Tensor::new(1u8, cpu)?),
    ];
    let npy = tallow::block_on(tallow::npy::to_bytes_async(&arrays[0].1))?;
    let stored = tallow::block_on(tallow::npy::npz_to_bytes_async(&arrays))?;
    let deflated = include_bytes!("npy_fixtures/deflated.npz").to_vec();
    // What is done once is not counted.
    assert!(read_npy(&npy) && read_npz(&stored.clone().into()) && read_npz(&deflated.clone().into()));
    let mut rng = Rng(4);
    let (mut sound, mut worst) = ([0; 2], 0);
    for round in 0..10_000 {
        let damaged = damage(&mut rng, &npy, 128);
        let used = peak(|| sound[0] += usize::from(read_npy(&damaged)));
        assert!(used <= allowed(damaged.len()), "round {round}: {used} bytes for a file of {}", damaged.len());
        worst = worst.max(used);
        let base = if round % 2 == 0 { &stored } else { &deflated };
        let damaged = Bytes::from(damage(&mut rng, base, base.len()));
        let used = peak(|| sound[1] += usize::from(read_npz(&damaged)));
        assert!(used <= allowed(damaged.len()), "round {round}: {used} bytes for an archive of {}", damaged.len());
        worst = worst.max(used);
    }
    assert!(sound.iter().all(|n| (1..5000).contains(n)), "{sound:?} of 10000 damaged files were accepted");
    println!("{sound:?} accepted, at most {worst} bytes");
    Ok(())
}

/// Loads each tensor of a PyTorch file; whether that worked.
fn read_pth(file: &Bytes) -> bool {
    let Ok(read) = tallow::pickle::PthTensors::parse(file.clone(), None) else { return false };
    read.names().iter().fold(true, |sound, name| match read.get(name) {
        Ok(found) => {
            let (found, info) = (found.expect("it is named"), &read.tensor_infos()[name]);
            assert_eq!((found.shape(), found.dtype()), (&info.layout.shape, info.dtype));
            sound
        }
        Err(error) => {
            assert!(error.to_string().len() < 2000);
            false
        }
    })
}

#[test]
fn damaged_pth_files_neither_panic_nor_take_memory() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let bases: [&[u8]; 5] = [
        include_bytes!("pickle_fixtures/tensors_zip.pth"),
        include_bytes!("pickle_fixtures/tensors_plain.pth"),
        include_bytes!("pickle_fixtures/tensors_plain_protocol_5.pth"),
        include_bytes!("pickle_fixtures/checkpoint_plain.pth"),
        include_bytes!("pickle_fixtures/big_endian_deflated.pth"),
    ];
    assert!(bases.iter().all(|base| read_pth(&Bytes::from(*base))));
    let mut rng = Rng(5);
    let (mut sound, mut worst) = ([0; 5], 0);
    for round in 0..10_000 {
        let kind = round % bases.len();
        let file = Bytes::from(damage(&mut rng, bases[kind], bases[kind].len()));
        let used = peak(|| sound[kind] += usize::from(read_pth(&file)));
        assert!(used <= allowed(file.len()), "round {round}: {used} bytes for a file of {}", file.len());
        worst = worst.max(used);
    }
    println!("{sound:?} of 2000 each accepted, at most {worst} bytes");
    // Most damage must be seen; damage to a tensor's numbers cannot be.
    assert!(sound.iter().all(|n| (1..1500).contains(n)), "{sound:?} of 2000 damaged files were accepted");
}

/// Pickles that make as much of each byte as the machine allows: memory in proportion to their length.
#[test]
fn dense_pickles_stay_within_a_bound() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    // The older layout: three small pickles, this one, an empty list of storages.
    let file = |pickle: &[u8]| {
        let magic = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
        Bytes::from([magic, &b"N.N."[..], pickle, b"]."].concat())
    };
    const N: usize = 200_000;
    let list = |items: &[u8]| [b"](", &items.repeat(N)[..], b"e."].concat();
    // One list of pairs, given to OrderedDict again and again; a long name, called again and again.
    let pairs = [b"](", &b"NN\x86".repeat(N)[..], b"eq\x000ccollections\nOrderedDict\nq\x010"].concat();
    let pairs = [&pairs[..], &b"h\x01h\x00\x85R0".repeat(N / 10), b"}."].concat();
    let name = [&b"c"[..], &b"a".repeat(N), b"\nb\nq\x000", &b"h\x00)R0".repeat(N), b"}."].concat();
    for pickle in [
        list(b"N"),
        list(b"]"),
        list(b"}"),
        list(b")"),
        list(b"\x8c\x00\x94"),
        list(b"ca\nb\n"),
        list(b"ca\nb\n)R"),
        [&b"N".repeat(N)[..], &b"\x94".repeat(N), b"."].concat(),
        [&b"(".repeat(N)[..], b"N."].concat(),
        pairs,
        name,
    ] {
        let file = file(&pickle);
        let used = peak(|| drop(tallow::pickle::PthTensors::parse(file.clone(), None)));
        println!("{:.1} x", used as f64 / file.len() as f64);
        assert!(used <= 200 * file.len(), "{used} bytes for a file of {}", file.len());
    }
}

/// A GGJT file of three tokens and two tensors.
fn ggjt() -> Vec<u8> {
    let mut out = Vec::new();
    let put = |out: &mut Vec<u8>, words: &[u32]| words.iter().for_each(|n| out.extend(n.to_le_bytes()));
    put(&mut out, &[0x6767_6a74, 3, 3, 32, 1, 4, 5, 6, 7]);
    for token in ["a", "bc", ""] {
        put(&mut out, &[token.len() as u32]);
        out.extend(token.bytes());
        put(&mut out, &[0]);
    }
    for (kind, bytes) in [(8, 2 * 34), (0, 2 * 128)] {
        put(&mut out, &[2, 1, kind, 32, 2]);
        out.push(b't' + kind as u8);
        out.resize(out.len().next_multiple_of(32) + bytes, 0);
    }
    out
}

#[test]
fn damaged_files_of_quantized_weights_neither_panic_nor_take_memory() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    use std::io::Cursor;
    use tallow::{Device, quantized::ggml_file, quantized::gguf_file};
    let older = |bytes: &[u8]| ggml_file::Content::read(&mut Cursor::new(bytes), &Device::Cpu).is_ok();
    let newer = |bytes: &[u8]| {
        let mut file = Cursor::new(bytes);
        let Ok(content) = gguf_file::Content::read(&mut file) else { return false };
        content.tensor_infos.keys().all(|name| content.tensor(&mut file, name, &Device::Cpu).is_ok())
    };
    let bases = [ggjt(), model(40, 3)];
    assert!(older(&bases[0]) && newer(&bases[1]));
    let mut rng = Rng(6);
    let mut sound = [0; 2];
    for round in 0..10_000 {
        let kind = round % 2;
        let bytes = damage(&mut rng, &bases[kind], bases[kind].len());
        let used = peak(|| sound[kind] += usize::from(if kind == 0 { older(&bytes) } else { newer(&bytes) }));
        assert!(used <= allowed(bytes.len()), "round {round}: {used} bytes for a file of {}", bytes.len());
    }
    println!("{sound:?} of 5000 each accepted");
    assert!(sound.iter().all(|n| (1..4000).contains(n)), "{sound:?} of 5000 damaged files were accepted");
}
