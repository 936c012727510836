//! Configurations from files that nobody should have written: an error that says why, never a panic.

use serde_json::{Value, json};
use tallow::{
    DType,
    formats::{
        Bytes, Gguf,
        gguf::{OwnedValue, Writer},
    },
};
use tallow_models::{DecoderConfig, RopeConfig, RopeScaling};

fn sound() -> Value {
    json!({
        "model_type": "llama", "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 128, "max_position_embeddings": 256, "rms_norm_eps": 1e-5
    })
}

fn with(changes: Value) -> tallow::Result<DecoderConfig> {
    let mut json = sound();
    for (key, value) in changes.as_object().unwrap() {
        json[key] = value.clone();
    }
    DecoderConfig::from_hugging_face(&json.to_string())
}

#[test]
fn hostile_json_is_an_error() {
    assert!(with(json!({})).is_ok());
    let sizes = [
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "intermediate_size",
        "max_position_embeddings",
        "head_dim",
    ];
    for key in sizes {
        for value in [json!(0), json!(-1), json!(u64::MAX), json!(1u64 << 29), json!(1.5), json!("4")] {
            assert!(with(json!({ key: value })).is_err(), "{key} {value}");
        }
    }
    for key in ["vocab_size", "hidden_size", "num_attention_heads", "rms_norm_eps", "model_type"] {
        let mut json = sound();
        json.as_object_mut().unwrap().remove(key);
        let said = DecoderConfig::from_hugging_face(&json.to_string()).unwrap_err().to_string();
        assert!(said.contains(key), "{said}");
    }
    let llama3 = |factor: f64, low: f64, high: f64, original: f64| {
        json!({"rope_scaling": {"rope_type": "llama3", "factor": factor, "low_freq_factor": low,
            "high_freq_factor": high, "original_max_position_embeddings": original}})
    };
    assert!(with(llama3(8.0, 1.0, 4.0, 64.0)).is_ok());
    for changes in [
        llama3(0.0, 1.0, 4.0, 64.0),
        llama3(8.0, 0.0, 4.0, 64.0),
        llama3(8.0, 1.0, -4.0, 64.0),
        llama3(8.0, 1.0, 4.0, 0.0),
        llama3(8.0, 4.0, 4.0, 64.0),
        json!({"rope_scaling": {"type": "linear", "factor": 0.0}}),
        json!({"rope_scaling": {"type": "linear", "factor": -2.0}}),
        json!({"rope_scaling": {"type": "linear"}}),
        json!({"rope_scaling": {"type": "what"}}),
        json!({"rope_theta": 0.0}),
        json!({"rms_norm_eps": -1e-5}),
        json!({"num_attention_heads": 1 << 27, "num_key_value_heads": 1, "head_dim": 1 << 27}),
        json!({"num_attention_heads": 1 << 20, "num_key_value_heads": 1 << 20, "head_dim": 1 << 10}),
        json!({"num_attention_heads": 4, "num_key_value_heads": 3}),
        json!({"head_dim": 15}),
        json!({"num_hidden_layers": 10_001}),
        json!({"hidden_act": "what"}),
        json!({"model_type": "gpt2"}),
    ] {
        assert!(with(changes.clone()).is_err(), "{changes}");
    }
    for text in ["", "{", "[]", "null", "{\"model_type\": 3}"] {
        assert!(DecoderConfig::from_hugging_face(text).is_err(), "{text}");
    }
    assert!(with(json!({"rms_norm_eps": 0.0})).is_ok());
}

#[test]
fn windows_are_where_the_families_have_them() {
    let qwen2 = |more: Value| {
        let mut changes = json!({"model_type": "qwen2", "sliding_window": 32, "num_hidden_layers": 30});
        changes.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        with(changes).unwrap()
    };
    assert_eq!(qwen2(json!({})).window, None);
    let on = qwen2(json!({"use_sliding_window": true}));
    assert_eq!((on.window, on.window_from_layer), (Some(32), 28));
    assert_eq!(qwen2(json!({"use_sliding_window": true, "max_window_layers": 3})).window_from_layer, 3);
    assert_eq!(with(json!({"model_type": "mistral", "sliding_window": 32})).unwrap().window, Some(32));
    assert_eq!(with(json!({"model_type": "mistral", "sliding_window": 0})).unwrap().window, None);
}

/// A header with the usual keys, some of them changed or (`None`) left out.
fn gguf(changes: &[(&str, Option<OwnedValue>)]) -> tallow::Result<DecoderConfig> {
    let mut keys = vec![
        ("general.architecture", OwnedValue::from("llama")),
        ("llama.block_count", 1u32.into()),
        ("llama.embedding_length", 64u32.into()),
        ("llama.feed_forward_length", 128u32.into()),
        ("llama.attention.head_count", 4u32.into()),
        ("llama.attention.head_count_kv", 2u32.into()),
        ("llama.attention.layer_norm_rms_epsilon", 1e-5f32.into()),
        ("llama.context_length", 256u32.into()),
    ];
    for (key, value) in changes {
        keys.retain(|(name, _)| name != key);
        keys.extend(value.clone().map(|value| (*key, value)));
    }
    let file = Writer::new().tensor("token_embd.weight", DType::F32, &[4, 64], vec![0; 1024]);
    let file = keys.into_iter().fold(file, |file, (key, value)| file.metadata(key, value));
    DecoderConfig::from_gguf(Gguf::parse(Bytes::from(file.to_bytes().unwrap())).unwrap().header())
}

#[test]
fn hostile_metadata_is_an_error() {
    assert!(gguf(&[]).is_ok());
    let needed = [
        "general.architecture",
        "llama.block_count",
        "llama.embedding_length",
        "llama.feed_forward_length",
        "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon",
        "llama.context_length",
    ];
    for key in needed {
        let said = gguf(&[(key, None)]).unwrap_err().to_string();
        assert!(said.contains(key), "{said}");
        assert!(gguf(&[(key, Some("what".into()))]).is_err(), "{key}");
    }
    for key in &needed[1..] {
        for value in [u64::MAX, 1 << 62, 1 << 29] {
            let eps = key.ends_with("epsilon");
            assert!(eps || gguf(&[(key, Some(value.into()))]).is_err(), "{key} {value}");
        }
        assert!(key.ends_with("epsilon") || gguf(&[(key, Some(0u32.into()))]).is_err(), "{key} 0");
        assert!(gguf(&[(key, Some((-1i32).into()))]).is_err(), "{key} -1");
    }
    assert!(gguf(&[("llama.attention.head_count_kv", Some(0u32.into()))]).is_err());
    assert!(gguf(&[("llama.block_count", Some(2u32.into()))]).is_err(), "more layers than tensors");
    for eps in [f32::NAN, f32::INFINITY, -1.0] {
        assert!(gguf(&[("llama.attention.layer_norm_rms_epsilon", Some(eps.into()))]).is_err(), "{eps}");
    }
    for base in [f32::NAN, f32::INFINITY, 0.0, -1.0] {
        assert!(gguf(&[("llama.rope.freq_base", Some(base.into()))]).is_err(), "{base}");
        let linear = ("llama.rope.scaling.type", Some("linear".into()));
        assert!(gguf(&[linear, ("llama.rope.scaling.factor", Some(base.into()))]).is_err(), "{base}");
    }
    assert_eq!(gguf(&[("llama.attention.sliding_window", Some(0u32.into()))]).unwrap().window, None);
}

#[test]
fn divisors_of_another_count_are_refused() {
    let config = gguf(&[]).unwrap();
    let rope = RopeConfig { scaling: RopeScaling::Divisors(vec![1.0; 3]), ..config.rope };
    assert!(rope.frequencies(16).is_err());
    assert!(rope.frequencies(6).is_ok());
}
