// Signing in: by a link with a one-time token, or by name and password.
import { html, useState } from "../html.js";
import { passwordLogin } from "../session.js";
import { TextField } from "../parts/fields.js";
import { ErrorBox, Note } from "../parts/notices.js";

export function SignIn({ notice, onSignIn }) {
  const [username, setUsername] = useState("");
  const [password, setPassword] = useState("");
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await onSignIn({ username, password });
    } catch (failure) {
      setError(failure);
      setPassword("");
      setBusy(false);
    }
  };
  return html`<main class="alone sign-in"><h1><img src="icon.svg" alt="" width="32" height="32" />Holdfast</h1>
    ${notice && html`<${Note} kind="warning"><p>${notice}</p><//>`}
    ${passwordLogin && html`<form onSubmit=${submit}>
      <${TextField} label="User name" name="username" autocomplete="username" value=${username} onValue=${setUsername} required />
      <${TextField} label="Password" name="password" type="password" autocomplete="current-password" value=${password} onValue=${setPassword} required />
      ${error && html`<${ErrorBox} error=${error} />`}
      <button class="primary" disabled=${busy}>${busy ? "Signing in…" : "Sign in"}</button>
    </form>`}
    <section><h2>${passwordLogin ? "Without a password" : "Sign in by a link"}</h2>
      <p>On the broker's machine, this command prints a link that opens the dashboard once:</p>
      <pre class="content">holdfast dashboard</pre>
      <p class="quiet">A link works one time and for a short time. <code>make run</code> prints one at its start, too.</p></section>
  </main>`;
}
