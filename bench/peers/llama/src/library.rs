//! The few functions of llama.h and ggml-backend.h that a greedy generation calls, looked up at run time.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;

use libloading::os::unix::{Library as Shared, RTLD_GLOBAL, RTLD_NOW, Symbol};

/// A struct of parameters, whose fields change from release to release: only those are set that lie at its beginning, all
/// others keep the library's defaults. It is larger than the true one. On x86-64 under System V both a result and an
/// argument of such a size lie in memory from the beginning on, so that the callee writes and reads its own part of it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Parameters([u32; 128]);

/// `llama_batch`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Batch {
    tokens: i32,
    token: *mut i32,
    embedding: *mut f32,
    position: *mut i32,
    sequences: *mut i32,
    sequence: *mut *mut i32,
    logits: *mut i8,
}

type Pointer = *mut c_void;

/// llama.cpp.
pub struct Library {
    load: Symbol<unsafe extern "C" fn(*const c_char, Parameters) -> Pointer>,
    model_defaults: Symbol<unsafe extern "C" fn() -> Parameters>,
    context_defaults: Symbol<unsafe extern "C" fn() -> Parameters>,
    init: Symbol<unsafe extern "C" fn(Pointer, Parameters) -> Pointer>,
    set_threads: Symbol<unsafe extern "C" fn(Pointer, i32, i32)>,
    memory: Symbol<unsafe extern "C" fn(Pointer) -> Pointer>,
    clear: Symbol<unsafe extern "C" fn(Pointer, bool)>,
    batch: Symbol<unsafe extern "C" fn(*mut i32, i32) -> Batch>,
    decode: Symbol<unsafe extern "C" fn(Pointer, Batch) -> i32>,
    logits: Symbol<unsafe extern "C" fn(Pointer, i32) -> *mut f32>,
    vocab: Symbol<unsafe extern "C" fn(Pointer) -> Pointer>,
    vocab_size: Symbol<unsafe extern "C" fn(Pointer) -> i32>,
    free: Symbol<unsafe extern "C" fn(Pointer)>,
    free_model: Symbol<unsafe extern "C" fn(Pointer)>,
    system: Symbol<unsafe extern "C" fn() -> *const c_char>,
    version: String,
}

extern "C" fn silent(_: c_int, _: *const c_char, _: Pointer) {}

impl Library {
    /// Loads the libraries of a folder, for the rest of the process.
    pub fn open(folder: &Path) -> Result<&'static Self, String> {
        // The names carry the release: libllama.v0.5.0.so.
        let mut version = String::new();
        let mut named = |start: &str| -> Result<Shared, String> {
            let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
            let mut names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
            let name = names
                .find(|name| name.strip_prefix(start).is_some_and(|rest| rest == ".so" || rest.starts_with(".v")))
                .ok_or_else(|| format!("no {start} in {}", folder.display()))?;
            version = name[start.len()..].trim_end_matches(".so").trim_start_matches('.').to_owned();
            // SAFETY: running the initialisers of llama.cpp's own libraries is what is wanted.
            unsafe { Shared::open(Some(folder.join(&name)), RTLD_NOW | RTLD_GLOBAL) }.map_err(|error| error.to_string())
        };
        let ggml = named("libggml")?;
        let llama = named("libllama")?;
        let text = |path: &Path| CString::new(path.as_os_str().as_encoded_bytes()).map_err(|error| error.to_string());
        // SAFETY: each type is that of the function in llama.h or ggml-backend.h; see `Parameters` for those by value.
        let library = unsafe {
            macro_rules! function {
                ($library:ident, $name:literal) => {
                    $library.get($name).map_err(|error| error.to_string())?
                };
            }
            let load_all: Symbol<unsafe extern "C" fn(*const c_char)> =
                function!(ggml, b"ggml_backend_load_all_from_path\0");
            let backend_init: Symbol<unsafe extern "C" fn()> = function!(llama, b"llama_backend_init\0");
            let log_set: Symbol<unsafe extern "C" fn(extern "C" fn(c_int, *const c_char, Pointer), Pointer)> =
                function!(llama, b"llama_log_set\0");
            log_set(silent, std::ptr::null_mut());
            load_all(text(folder)?.as_ptr());
            backend_init();
            Self {
                load: function!(llama, b"llama_model_load_from_file\0"),
                model_defaults: function!(llama, b"llama_model_default_params\0"),
                context_defaults: function!(llama, b"llama_context_default_params\0"),
                init: function!(llama, b"llama_init_from_model\0"),
                set_threads: function!(llama, b"llama_set_n_threads\0"),
                memory: function!(llama, b"llama_get_memory\0"),
                clear: function!(llama, b"llama_memory_clear\0"),
                batch: function!(llama, b"llama_batch_get_one\0"),
                decode: function!(llama, b"llama_decode\0"),
                logits: function!(llama, b"llama_get_logits_ith\0"),
                vocab: function!(llama, b"llama_model_get_vocab\0"),
                vocab_size: function!(llama, b"llama_vocab_n_tokens\0"),
                free: function!(llama, b"llama_free\0"),
                free_model: function!(llama, b"llama_model_free\0"),
                system: function!(llama, b"llama_print_system_info\0"),
                version,
            }
        };
        // The symbols above live as long as their libraries do.
        std::mem::forget((ggml, llama));
        Ok(Box::leak(Box::new(library)))
    }

    /// The release.
    pub fn version(&self) -> String {
        self.version.clone()
    }

    /// The instruction sets that it uses.
    pub fn instructions(&self) -> String {
        // SAFETY: the function gives a static text, or null.
        let text = unsafe {
            let text = (self.system)();
            if text.is_null() { c"" } else { CStr::from_ptr(text) }
        };
        let used = |word: &str| word.strip_suffix(" = 1").map(|name| name.trim().to_owned());
        let words = text.to_string_lossy().split(['|', ':']).filter_map(|word| used(word.trim())).collect::<Vec<_>>();
        words.join(" ")
    }

    /// Loads a model, with room for so many positions.
    pub fn load(&'static self, path: &Path, positions: u32, threads: i32) -> Result<Context, String> {
        let name = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: the pointers come from the library and are checked; see `Parameters` for the structs.
        unsafe {
            let model = (self.load)(name.as_ptr(), (self.model_defaults)());
            if model.is_null() {
                return Err(format!("llama.cpp cannot load {}", path.display()));
            }
            let mut parameters = (self.context_defaults)();
            // n_ctx is the first field.
            parameters.0[0] = positions;
            let context = (self.init)(model, parameters);
            if context.is_null() {
                (self.free_model)(model);
                return Err("llama.cpp makes no context".into());
            }
            (self.set_threads)(context, threads, threads);
            let vocabulary = (self.vocab_size)((self.vocab)(model)) as usize;
            Ok(Context { library: self, model, context, vocabulary, ids: Vec::new() })
        }
    }
}

/// A loaded model with its cache.
pub struct Context {
    library: &'static Library,
    model: Pointer,
    context: Pointer,
    vocabulary: usize,
    ids: Vec<i32>,
}

impl Context {
    /// Empties the cache.
    pub fn clear(&mut self) {
        // SAFETY: the context is the library's own and alive.
        unsafe { (self.library.clear)((self.library.memory)(self.context), true) };
    }

    /// Appends ids to the cache, and gives the logits after the last of them.
    pub fn decode(&mut self, ids: &[u32]) -> Result<&[f32], String> {
        self.ids = ids.iter().map(|&id| id as i32).collect();
        // SAFETY: the ids outlive the call; the logits are the library's, one for each token of the vocabulary, and stay until
        // the next call, which needs `self` mutably.
        unsafe {
            let batch = (self.library.batch)(self.ids.as_mut_ptr(), self.ids.len() as i32);
            let status = (self.library.decode)(self.context, batch);
            if status != 0 {
                return Err(format!("llama_decode gave {status}"));
            }
            let logits = (self.library.logits)(self.context, -1);
            if logits.is_null() {
                return Err("llama.cpp has no logits".into());
            }
            Ok(std::slice::from_raw_parts(logits, self.vocabulary))
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: both are the library's own, and nobody else has them.
        unsafe {
            (self.library.free)(self.context);
            (self.library.free_model)(self.model);
        }
    }
}
