//! Chat templates in the styles of the usual models. The templates are written here after the formats that the models
//! document; the expected strings are those formats, written out.
#![cfg(feature = "text")]

use std::time::Duration;

use tallow::text::{ChatTemplate, Message};

fn conversation() -> Vec<Message> {
    vec![
        Message::system("Be brief."),
        Message::user(" Hi <b> & \"you\" "),
        Message::assistant("Hello."),
        Message::user("Who are you?"),
    ]
}

fn render(source: &str, messages: &[Message], prompt: bool) -> String {
    ChatTemplate::new(source, Some("<s>"), Some("</s>")).unwrap().render(messages, prompt).unwrap()
}

fn error(source: &str) -> String {
    let template = ChatTemplate::new(source, Some("<s>"), None);
    template.and_then(|template| template.render(&conversation(), true)).unwrap_err().to_string()
}

#[test]
fn chatml_with_a_default_system_message() {
    // SmolLM2's and Qwen2's form.
    let source = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}\
        {{ '<|im_start|>system\nYou are helpful.<|im_end|>\n' }}{% endif %}{{ '<|im_start|>' + message['role'] + '\n' + \
        message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    assert_eq!(
        render(source, &[Message::user("Hi")], true),
        "<|im_start|>system\nYou are helpful.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    );
    assert_eq!(
        render(source, &conversation(), false),
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi <b> & \"you\" <|im_end|>\n\
         <|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nWho are you?<|im_end|>\n"
    );
}

#[test]
fn llama_3_headers_trim_and_date() {
    let source = r#"
{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = strftime_now("%d %b %Y") %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}{{- "Environment: ipython\n" }}{%- endif %}
{{- "Today Date: " + date_string + "\n\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"#;
    let mut template = ChatTemplate::new(source, Some("<|begin_of_text|>"), None).unwrap();
    template.set_now(Duration::from_secs(1_709_210_096));
    assert_eq!(
        template.render(&conversation(), true).unwrap(),
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nToday Date: 29 Feb 2024\n\nBe brief.<|eot_id|>\
         <|start_header_id|>user<|end_header_id|>\n\nHi <b> & \"you\"<|eot_id|>\
         <|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>\
         <|start_header_id|>user<|end_header_id|>\n\nWho are you?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    );
}

#[test]
fn mistral_alternates_and_refuses_what_does_not() {
    let source = "{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] %}\
        {%- set loop_messages = messages[1:] %}{%- else %}{%- set loop_messages = messages %}{%- endif %}{{ bos_token }}\
        {%- set ns = namespace(index=0) %}{%- for message in loop_messages %}\
        {%- if (message['role'] == 'user') != (ns.index % 2 == 0) %}\
        {{- raise_exception('roles must alternate user/assistant') }}{%- endif %}{%- set ns.index = ns.index + 1 %}\
        {%- if message['role'] == 'user' %}{%- if loop.first and system is defined %}\
        {{- '[INST] ' + system + '\\n\\n' + message['content'].strip() + ' [/INST]' }}{%- else %}\
        {{- '[INST] ' + message['content'].strip() + ' [/INST]' }}{%- endif %}\
        {%- else %}{{- ' ' + message['content'] + eos_token }}{%- endif %}{%- endfor %}";
    assert_eq!(
        render(source, &conversation(), true),
        "<s>[INST] Be brief.\n\nHi <b> & \"you\" [/INST] Hello.</s>[INST] Who are you? [/INST]"
    );
    let template = ChatTemplate::new(source, Some("<s>"), Some("</s>")).unwrap();
    let error = template.render(&[Message::assistant("Hi")], true).unwrap_err().to_string();
    assert!(error.contains("roles must alternate"), "{error}");
}

#[test]
fn gemma_renames_roles_and_qwen_thinks() {
    let source = "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}{% continue %}{% endif %}\
        {% set role = 'model' if message['role'] == 'assistant' else message['role'] %}\
        {{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}\
        {% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}";
    assert_eq!(
        render(source, &conversation(), true),
        "<s><start_of_turn>user\nHi <b> & \"you\"<end_of_turn>\n<start_of_turn>model\nHello.<end_of_turn>\n\
         <start_of_turn>user\nWho are you?<end_of_turn>\n<start_of_turn>model\n"
    );
    let source = "{%- macro content_of(m) -%}{%- if m.content is string -%}{{ m.content }}{%- endif -%}{%- endmacro -%}\
        {%- set ns = namespace(last=-1, seen=[]) -%}{%- for m in messages[::-1] -%}{%- set at = messages|length - 1 - loop.index0 -%}\
        {%- if m.role == 'user' and ns.last < 0 -%}{%- set ns.last = at -%}{%- endif -%}{%- set ns.seen = ns.seen + [m.role] -%}\
        {%- endfor -%}{{ ns.last }} {{ ns.seen|join(',') }} {{ content_of(messages[2]) }} \
        {{- ('a</think>b</think>\\n c'.split('</think>')[-1]).lstrip('\\n') }}";
    assert_eq!(render(source, &conversation(), true), "3 user,assistant,user,system Hello. c");
}

#[test]
fn python_methods() {
    for (expression, expected) in [
        ("' a b '.strip() ~ '|' ~ ' a '.lstrip() ~ '|' ~ ' a '.rstrip() ~ '|'", "a b|a | a|"),
        ("'xxaxx'.strip('x') ~ 'abc'.rstrip('cb')", "aa"),
        ("'abc'.startswith('ab') and 'abc'.endswith(('x', 'bc')) and not 'abc'.startswith('b')", "True"),
        ("'a,b,,c'.split(',')|length ~ ' a  b '.split()|join('-') ~ 'a,b,c'.split(',', 1)[1]", "4a-bb,c"),
        ("'a,b,c'.rsplit(',', maxsplit=1)[0] ~ 'a\\nb'.splitlines()|length", "a,b2"),
        ("'aB'.upper() ~ 'aB'.lower() ~ 'aB cD'.title() ~ 'hELLO'.capitalize()", "ABabAb CdHello"),
        ("'aaa'.replace('a', 'b') ~ 'aaa'.replace('a', 'b', 2) ~ 'aaa'.count('a')", "bbbbba3"),
        ("'héllo'.find('l') ~ ' ' ~ 'hello'.rfind('l') ~ ' ' ~ 'x'.find('y')", "2 3 -1"),
        ("', '.join(['a', 'b']) ~ '12'.isdigit() ~ ''.isdigit()", "a, bTrueFalse"),
        ("{'a': 1}.get('a') ~ {'a': 1}.get('b', 7) ~ ({'a': 1}.get('b') is none)", "17True"),
        (
            "{'z': 1, 'a': 2}.items()|map('join', '=')|join(' ') ~ {'z': 1, 'a': 2}.keys()|join ~ {'z': 1}.values()|join",
            "z=1 a=2za1",
        ),
        ("{'get': 1}.get('get')", "1"),
        ("{'b': [1, 2.5, true, none], 'a': 'é<\"\\n'}|tojson", r#"{"b": [1, 2.5, true, null], "a": "é<\"\n"}"#),
        ("{'a': [1], 'b': []}|tojson(indent=2)", "{\n  \"a\": [\n    1\n  ],\n  \"b\": []\n}"),
    ] {
        assert_eq!(render(&format!("{{{{ {expression} }}}}"), &[], false), expected, "{expression}");
    }
    assert!(error("{{ 'a'.nothing() }}").contains("nothing"));
    assert!(error("{{ 'a'.split('') }}").contains("empty"));
    assert!(error("{{ [1].append(2) }}").contains("append"));
}

#[test]
fn generation_marks_are_passed_over() {
    let source = "{% for m in messages %}{%- generation -%} {{ m.role }} {%- endgeneration %};{% endfor %}";
    assert_eq!(render(source, &conversation(), true), "system;user;assistant;user;");
}

#[test]
fn templates_that_never_end_are_stopped() {
    let many = "range(100000)";
    for source in [
        format!(
            "{{% for a in {many} %}}{{% for b in {many} %}}{{% for c in {many} %}}{{% endfor %}}{{% endfor %}}{{% endfor %}}"
        ),
        format!("{{% for a in {many} %}}{{% for b in {many} %}}some text{{% endfor %}}{{% endfor %}}"),
        "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}".into(),
        "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x.replace('a', ns.x) %}{% endfor %}"
            .into(),
        "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x.join([ns.x, ns.x]) %}{% endfor %}"
            .into(),
        "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}".into(),
    ] {
        let error = error(&source);
        assert!(error.contains("probably loops"), "{source}: {error}");
    }
    assert!(error("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}").contains("recursion"));
}

/// Values nested without end would overflow the stack when printed or dropped.
#[test]
fn values_can_not_be_nested_without_end() {
    let begin = "{% set ns = namespace(x=1) %}{% for i in range(50000) %}";
    for (step, expected) in [
        ("{% set ns.x = [ns.x] %}", "nested"),
        ("{%- set  ns . x=[ns.x],-%}", "nested"),
        ("{% set (a, ns.x) = 1, [ns.x] %}", "nested"),
        ("{% set ns.x = {'%}': ns.x} %}", "nested"),
        ("{% set ns.x = (ns.x, 1)|batch(2) %}", "nested"),
        ("{% set ns.x = ns %}", "namespace"),
        ("{% set ns.x = namespace(x=ns.x) %}", "namespace"),
        ("{% set ns.x|default([ns.x], true) %}{% endset %}", "set block"),
    ] {
        let error = error(&format!("{begin}{step}{{% endfor %}}{{{{ ns.x }}}}"));
        assert!(error.contains(expected), "{step}: {error}");
    }
    let deep = |n: usize| format!("{{{{ {}{} }}}}", "[".repeat(n), "]".repeat(n));
    assert!(error(&deep(5000)).contains("recursion"));
    assert_eq!(
        render(
            "{% set ns = namespace(x=[]) %}{% for m in messages %}{% set ns.x = ns.x + [m] %}{% endfor %}{{ ns.x|length }}",
            &conversation(),
            true
        ),
        "4"
    );
}

#[test]
fn bad_templates_are_errors_with_their_place() {
    assert!(error("{% for %}").contains("line") || error("{% for %}").contains(":1"));
    assert!(error(&"x".repeat(300_000)).contains("262144"));
    assert!(error("{{ messages[0].content.nothing.more }}").contains("undefined"));
    assert!(error("{% include 'other' %}").contains("include"));
}

#[test]
fn long_conversations_have_the_fuel_they_need() {
    let source = "{% for m in messages %}{{ '<' + m.role + '>' + m.content | trim + '</s>' }}{% endfor %}";
    let messages: Vec<Message> = (0..3000).map(|i| Message::user(format!("{i} {}", "word ".repeat(400)))).collect();
    assert!(render(source, &messages, true).len() > 6_000_000);
}
