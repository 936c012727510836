//! From what the user wrote to a model that is ready: device, file, weights.

use crate::{
    failure::{Failure, Outcome},
    interrupt::Watch,
    options::ModelArgs,
    output::note,
    progress::Bar,
};
use std::{
    io::Read,
    num::NonZeroUsize,
    path::{Path, PathBuf},
};
use tallow::{Device, Error};
use tallow_models::{LanguageModel, LoadOptions, hub};

/// The path of the file (or folder) that `reference` means, fetched if need be. Ctrl-C stops the fetch; what came so far is
/// kept.
pub fn locate(reference: &str) -> Outcome<PathBuf> {
    let watch = Watch::start();
    let located = {
        let bar = Bar::new(&watch);
        hub::locate(reference, &hub::Options::from_env(), &bar)
    };
    match located {
        Ok(found) => Ok(found.path),
        Err(error) if watch.pressed() => Err(Failure::Interrupted(Some(error))),
        Err(error) => Err(error.into()),
    }
}

/// The device and the model that the options ask for. The device comes first: where it does not exist, nothing is fetched.
pub fn open(args: &ModelArgs) -> Outcome<LanguageModel> {
    let device = tallow::block_on(Device::by_name(&args.device))?;
    let path = locate(&args.model)?;
    refuse_lone_safetensors(&path)?;
    let options =
        LoadOptions { activations: args.activations_on(&device), context: args.context.map(NonZeroUsize::get) };
    let model = LanguageModel::open(&path, &device, options)?;
    if let Some(warning) = model.tokenizer.warning() {
        note(&format!("warning: {}", crate::failure::one_line(warning)));
    }
    Ok(model)
}

/// Weights alone are no model. The file is known by its content: eight bytes of length, then JSON.
fn refuse_lone_safetensors(path: &Path) -> tallow::Result<()> {
    let mut head = [0; 9];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut head));
    // What cannot be read is the loader's to tell.
    if path.is_file() && read.is_ok() && head.ends_with(b"{") && !head.starts_with(b"GGUF") {
        let text = format!(
            "{} holds weights alone (safetensors): give the folder that has config.json and tokenizer.json beside it",
            path.display()
        );
        return Err(Error::msg(text));
    }
    Ok(())
}
