//! What a refusal by the hub means for the user, in one line.

use super::http::{Client, Reply};
use super::name::HubName;

/// The words for an answer that brings no file.
pub(super) fn refusal(reply: &Reply, client: &Client, name: &HubName) -> String {
    let repo = name.repo_id();
    let hub = client.endpoint();
    let status = reply.status;
    let gated = reply.error_code.as_deref() == Some("GatedRepo");
    match (status, reply.error_code.as_deref()) {
        (401, _) if reply.token_sent && !gated => {
            format!("401: {hub} does not accept the token. Set HF_TOKEN to a valid one that may read {repo}")
        }
        (401, _) if gated => format!(
            "401: {repo} is gated. Accept its terms at {hub}/{repo} and set HF_TOKEN to a token of that account"
        ),
        // The hub does not tell a stranger whether a repository is private or absent.
        (401, _) => format!(
            "401: the repository {repo} is private or does not exist. Check the name; if it is private, set HF_TOKEN to \
             a token that may read it"
        ),
        (403, _) => {
            let token = if reply.token_sent { "with the account whose token is set" } else { "and set HF_TOKEN" };
            format!(
                "403: {repo} is gated, or the token may not read it. Accept its terms at {hub}/{repo} {token}, then try \
                 again"
            )
        }
        (404, Some("RepoNotFound")) => format!("404: {hub} has no repository {repo}"),
        (404, Some("RevisionNotFound")) => format!("404: the repository {repo} has no revision {:?}", name.revision()),
        (404, Some("EntryNotFound")) => {
            format!("404: the repository {repo} has no file {:?} at revision {:?}", name.file(), name.revision())
        }
        (404, _) => format!(
            "404: {hub} has no file {:?} in the repository {repo} at revision {:?}",
            name.file(),
            name.revision()
        ),
        (416, _) => format!("416: {} refuses the range that was asked for of {:?}", reply.host, name.file()),
        (429, _) => format!("429: {} asks for fewer requests. Wait a while, or set HF_TOKEN", reply.host),
        (500.., _) => format!("{status}: {} has a fault of its own. Try again later", reply.host),
        _ => format!("{status}: {} gave an unexpected answer for {:?}", reply.host, name.file()),
    }
}
