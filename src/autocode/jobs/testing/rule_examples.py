"""Every rule of the default policy with its source, forms that it finds and texts that it leaves alone.

Forms are templates as :mod:`autocode.jobs.testing.rule_forms` draws them. ``docs/redaction.md`` has the same
as a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from autocode.jobs.testing.rule_forms import shown

__all__ = ["RULE_EXAMPLES", "RuleExamples", "table"]


@dataclass(frozen=True, slots=True)
class RuleExamples:
    """What is known of a rule.

    Args:
        source: where the form is described.
        forms: templates of what it finds.
        not_found: texts that come near and that it leaves alone.
    """

    source: str
    forms: tuple[str, ...]
    not_found: tuple[str, ...]


def table(kinds: Mapping[str, str]) -> str:
    """Return the rules as a table in Markdown.

    Args:
        kinds: the kind of each rule by its id, in order.
    """
    lines = ["| rule | kind | finds | leaves alone | source |", "|---|---|---|---|---|"]
    for rule, kind in kinds.items():
        known = RULE_EXAMPLES[rule]
        found = "<br>".join(map(shown, known.forms))
        left = "<br>".join(map(shown, known.not_found))
        lines.append(f"| `{rule}` | `{kind}` | {found} | {left} | {known.source} |")
    return "\n".join(lines) + "\n"


def _of(source: str, *forms: str, no: tuple[str, ...]) -> RuleExamples:
    return RuleExamples(source, forms, no)


RULE_EXAMPLES: Final[Mapping[str, RuleExamples]] = MappingProxyType({
    "private-key": _of(
        "RFC 7468", "«{pem}»", '{"type": "service_account", "private_key": "«{pemn}»\\n"}',
        no=("-----BEGIN PUBLIC KEY-----", "-----BEGIN RSA PRIVATE KEY-----"),
    ),
    "private-key-base64": _of(
        "RFC 7468, encoded once more", "key: «{pem64}»", no=("LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t",)
    ),
    "kubeconfig-key": _of(
        "Kubernetes: kubeconfig v1",
        "    client-key-data: «{w80}»",
        no=("client-key-data: DATA+OMITTED", "client-certificate-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t"),
    ),
    "aws-access-key": _of("AWS IAM: unique identifiers", "«AKIA{u16}»", no=("AKIA", "XAKIA7K4Q27K4Q27K4Q2")),
    "aws-temporary-key": _of("AWS IAM: unique identifiers", "«ASIA{u16}»", no=("ASIAPACIFICREGIONALDATA",)),
    "aws-bedrock-key": _of("AWS Bedrock: API keys", "«ABSK{w120}»", no=("ABSK",)),
    "aws-secret-key": _of(
        "AWS CLI: configuration",
        "aws_secret_access_key = «{w40}»",
        '"SecretAccessKey": "«{w40}»"',
        "AWS Secret Access Key [None]: «{w40}»",
        no=("aws_secret_access_key = <your key>", "AWS_SECRET_ACCESS_KEY=$(pass aws)"),
    ),
    "github-token": _of(
        "GitHub: token formats", "«ghp_{w36}»", "«ghs_{w36}»",
        no=("ghp_", "ghp_config_file"),
    ),
    "github-fine-grained": _of("GitHub: token formats", "«github_pat_{w22}_{w59}»", no=("github_pat_token",)),
    "gitlab-token": _of(
        "GitLab: token prefixes", "«glpat-{s20}»", "«glrt-{s20}»",
        no=("glpat-configuration-of-the-job",),
    ),
    "slack-token": _of("Slack: token types", "«xoxb-{d11}-{d11}-{w24}»", no=("xoxb-your-token-here",)),
    "slack-app-token": _of("Slack: token types", "«xapp-1-{u11}-{d13}-{h64}»", no=("xapp-1-",)),
    "slack-webhook": _of(
        "Slack: incoming webhooks",
        "https://hooks.slack.com/services/«T{u8}/B{u8}/{w24}»",
        no=("https://hooks.slack.com/services/",),
    ),
    "discord-webhook": _of(
        "Discord: webhooks", "https://discord.com/api/webhooks/{d18}/«{s68}»",
        no=("discord.com/api/webhooks/123/abc",),
    ),
    "anthropic-key": _of(
        "gitleaks: anthropic-api-key", "«sk-ant-api03-{s93}AA»",
        no=("sk-ant-", "risk-ant-colony"),
    ),
    "openai-key": _of(
        "OpenAI: API keys", "«sk-proj-{s60}»", "«sk-{w48}»",
        no=("sk-learn-project-template-name", "task-list"),
    ),
    "groq-key": _of("Groq: API keys", "«gsk_{w52}»", no=("gsk_",)),
    "xai-key": _of("xAI: API keys", "«xai-{w80}»", no=("xai-org",)),
    "perplexity-key": _of("Perplexity: API keys", "«pplx-{w48}»", no=("pplx-embed",)),
    "replicate-token": _of("Replicate: API tokens", "«r8_{w37}»", no=("r8_int",)),
    "huggingface-token": _of("Hugging Face: access tokens", "«hf_{a34}»", no=("hf_hub_download",)),
    "google-api-key": _of("gitleaks: gcp-api-key", "«AIza{s35}»", no=("AIza",)),
    "google-oauth": _of("Google: OAuth clients", "«GOCSPX-{s28}»", no=("GOCSPX-",)),
    "google-access-token": _of("Google: OAuth 2.0", "«ya29.{s60}»", no=("ya29.",)),
    "google-refresh-token": _of("Google: OAuth 2.0", "«1//0{s60}»", no=("1//0",)),
    "azure-key": _of(
        "Azure: connection strings",
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=«{w86}==»;x",
        "SharedAccessKey=«{w43}=»",
        no=("AccountKey=",),
    ),
    "azure-signature": _of("Azure: shared access signatures", "?sv=2024&sig=«{w43}%3D»", no=("?sig=short",)),
    "azure-client-secret": _of("gitleaks: azure-ad-client-secret", "«{w3}8Q~{s34}»", no=("8Q~",)),
    "stripe-key": _of("Stripe: API keys", "«sk_live_{w24}»", "«rk_test_{w24}»", no=("sk_live_publishable",)),
    "webhook-secret": _of("Standard Webhooks", "«whsec_{w32}»", no=("whsec_",)),
    "sendgrid-key": _of("SendGrid: API keys", "«SG.{s22}.{s43}»", no=("SG.config.value",)),
    "twilio-key": _of(
        "gitleaks: twilio-api-key", "TWILIO_SID=«SK{h32}»",
        no=("SK", "SK0123456789abcdef0123456789abcdef"),
    ),
    "mailgun-key": _of("Mailgun: API keys", "«key-{h32}»", no=("key-value",)),
    "telegram-token": _of("Telegram: bots", "«{d10}:AA{s33}»", no=("12:AA",)),
    "npm-token": _of("npm: access tokens", "«npm_{w36}»", no=("npm_config_registry",)),
    "pypi-token": _of(
        "gitleaks: pypi-upload-token", "«pypi-AgEIcHlwaS5vcmc{s60}»",
        no=("pypi-attestations",),
    ),
    "prefect-key": _of("gitleaks: prefect-api-token", "«pnu_{w36}»", no=("pnu_",)),
    "rubygems-token": _of("gitleaks: rubygems-api-token", "«rubygems_{h48}»", no=("rubygems_plugin",)),
    "docker-token": _of("Docker: access tokens", "«dckr_pat_{s27}»", no=("dckr_pat_",)),
    "digitalocean-token": _of("gitleaks: digitalocean-pat", "«dop_v1_{h64}»", no=("dop_v1_",)),
    "heroku-key": _of("Heroku: API keys", "«HRKU-{s60}»", no=("HRKU-",)),
    "fly-token": _of("gitleaks: flyio-access-token", "«fm2_{w120}»", no=("fm2_",)),
    "supabase-key": _of("Supabase: API keys", "«sbp_{h40}»", "«sb_secret_{s32}»", no=("sb_secret_key",)),
    "databricks-token": _of("gitleaks: databricks-api-token", "«dapi{h32}»", no=("dapi",)),
    "vault-token": _of("HashiCorp Vault: tokens", "«hvs.{s90}»", no=("hvs.",)),
    "terraform-token": _of("HCP Terraform: API tokens", "«{w14}.atlasv1.{s67}»", no=("x.atlasv1.y",)),
    "pulumi-token": _of("gitleaks: pulumi-api-token", "«pul-{h40}»", no=("pul-",)),
    "grafana-token": _of("Grafana: service accounts", "«glsa_{w32}_{h8}»", no=("glsa_",)),
    "sentry-token": _of("gitleaks: sentry-user-token", "«sntryu_{h64}»", no=("sntryu_",)),
    "new-relic-key": _of("New Relic: API keys", "«NRAK-{u27}»", no=("NRAK-",)),
    "dynatrace-token": _of("gitleaks: dynatrace-api-token", "«dt0c01.{u24}.{u64}»", no=("dt0c01.sample",)),
    "atlassian-token": _of("gitleaks: atlassian-api-token", "«ATATT3{s186}»", no=("ATATT3",)),
    "linear-key": _of("Linear: API keys", "«lin_api_{w40}»", no=("lin_api_client",)),
    "notion-token": _of("Notion: integrations", "«ntn_{w46}»", no=("ntn_",)),
    "figma-token": _of("Figma: access tokens", "«figd_{s40}»", no=("figd_",)),
    "postman-key": _of("Postman: API keys", "«PMAK-{h24}-{h34}»", no=("PMAK-",)),
    "shopify-token": _of("gitleaks: shopify-access-token", "«shpat_{h32}»", no=("shpat_",)),
    "square-token": _of("gitleaks: square-access-token", "«sq0atp-{s22}»", no=("sq0atp-",)),
    "doppler-token": _of(
        "Doppler: token formats", "«dp.pt.{w43}»", "«dp.st.prd.{w43}»",
        no=("dp.pt.short", "dp.pt.configuration"),
    ),
    "mailchimp-key": _of(
        "gitleaks: mailchimp-api-key", "MAILCHIMP=«{h32}-us12»",
        no=("0123456789abcdef0123456789abcdef-us-east-1", "deploy-us12"),
    ),
    "password-hash": _of(
        "htpasswd(1); crypt(5)",
        "deploy:«$apr1${w8}${w22}»",
        "root:«$6${w16}${w86}»:19000:0:99999:7:::",
        no=("$apr1$salt$hash", "echo $1$2"),
    ),
    "bcrypt-hash": _of("htpasswd(1); crypt(5)", "deploy:«$2y$10${w53}»", no=("$2y$10$salt", "$2b$12$")),
    "age-key": _of("gitleaks: age-secret-key", "«AGE-SECRET-KEY-1{u58}»", no=("AGE-SECRET-KEY-1",)),
    "jwt": _of("RFC 7519", "«{jwt}»", no=("eyJ.eyJ.sig", "eyJhbGciOiJIUzI1NiJ9")),
    "authorization": _of(
        "RFC 9110, section 11.6.2",
        'curl -H "Authorization: Bearer «{w40}»"',
        "authorization: basic «{w30}»",
        no=("Authorization: Bearer $TOKEN", "Authorization: Bearer <token>"),
    ),
    "bearer-token": _of(
        "RFC 6750", 'headers("Bearer «{w40}»")',
        no=("the bearer of this certificate", "Bearer your-token-1234567890"),
    ),
    "api-key-header": _of(
        "IANA: provisional header fields",
        "X-Api-Key: «{w12}»",
        "x-auth-token: «{w24}»",
        no=("X-Api-Key: <key>", "X-Api-Key: $API_KEY"),
    ),
    "cookie": _of(
        "RFC 6265",
        "Set-Cookie: «session={w40}; Path=/; HttpOnly»",
        "Cookie: «theme=dark; sid={w32}»",
        no=("Cookie: theme=dark; lang=en-GB", "set-cookie: name=value; Path=/; Max-Age=3600"),
    ),
    "curl-user": _of(
        "curl: manual, --user",
        "curl -s -u deploy:«{w12}» https://example.org",
        no=("curl -u user:password https://example.org", "curl -u $USER:$PASS https://example.org"),
    ),
    "password-option": _of(
        "options of many programs",
        "tool --password «{s12}» up",
        "tool --db-password '«{s12}»'",
        no=(
            "tool --password $PASS", "tool --password <password>", "--password /run/secrets/db1",
            "--password-stdin", 'parser.add_argument("--password", required=True)',
        ),
    ),
    "secret-option": _of(
        "options of many programs",
        "tool --token «{w32}»",
        "tool --api-key «{w40}»",
        "tool --client-secret «{w32}»",
        no=(
            "tool --token $TOKEN", "tool --api-key your-api-key-0123456789", "--token sliding-window-counter",
        ),
    ),
    "login-password": _of(
        "docker login; redis-cli; mongosh: options",
        "docker login -u deploy -p «{w12}» registry.example.org",
        "redis-cli -h cache -a «{w12}» ping",
        "mongosh -u deploy -p «{w12}»",
        no=("docker login -u deploy -p $PASS", "docker run -p 8080:80 app", "redis-cli -a password ping"),
    ),
    "client-password": _of(
        "MySQL: client options; sshpass(1)",
        "mysql -u root -p«{w12}» app",
        "sshpass -p «{w12}» ssh host",
        no=("mysql -u root -p app", "sshpass -p $PASS ssh host"),
    ),
    "url-password": _of(
        "RFC 3986, section 3.2.1",
        "postgresql://app:«{w9}»@db.internal:5432/app",
        "redis://:«{w20}»@cache:6379/0",
        no=("postgres://postgres:postgres@localhost:5432/test", "https://${USER}:${TOKEN}@example.org"),
    ),
    "go-dsn-password": _of(
        "Go MySQL driver: DSN", "app:«{w12}»@tcp(db:3306)/app", no=("user:password@tcp(127.0.0.1:3306)/db",)
    ),
    "netrc-password": _of(
        "curl: .netrc",
        "machine example.org login deploy password «{w12}»",
        "machine example.org\n  login deploy\n  password «{w12}»",
        no=("machine example.org login deploy password <password>",),
    ),
    "pgpass-password": _of(
        "PostgreSQL: .pgpass", "db.internal:5432:app:deploy:«{w12}»",
        no=("localhost:5432:app",),
    ),
    "npmrc-auth": _of(
        "npm: .npmrc",
        "//npm.example.org/:_authToken=«{h8}-{h4}-{h4}-{h4}-{h12}»",
        "_auth=«{basic}»",
        no=("//npm.example.org/:_authToken=${NPM_TOKEN}",),
    ),
    "docker-auth": _of(
        "Docker: config.json", '"auth": "«{basic}»"',
        no=('"auth": "bearer"', '"auth": "dXNlcjpwYXNzd29yZA=="'),
    ),
    "sql-identified-by": _of(
        "MySQL, Oracle: CREATE USER",
        "CREATE USER app@'%' IDENTIFIED BY '«{w12}»';",
        "IDENTIFIED WITH caching_sha2_password BY '«{w12}»'",
        "alter user app identified by '«{w12}»'",
        no=(
            "IDENTIFIED BY 'password'",
            "a table identified by 'nameID' or 'a_1'",
            "IDENTIFIED BY '<password>'",
        ),
    ),
    "sql-role-password": _of(
        "PostgreSQL: CREATE ROLE",
        "CREATE ROLE app WITH LOGIN PASSWORD '«{w12}»';",
        "alter user app password '«{w12}»'",
        no=(
            "CREATE USER app PASSWORD 'changeme'",
            "ALTER ROLE app PASSWORD NULL",
            "CREATE USER app; -- password 'abc'",
        ),
    ),
    "url-token": _of(
        "RFC 3986, section 3.2.1",
        "https://«{w40}»@git.example.org/team/app.git",
        no=(
            "ssh://continuous-integration@example.org",
            "https://0123456789abcdef0123456789abcdef@o1.ingest.sentry.io/2",
        ),
    ),
    "url-signature": _of(
        "AWS: Signature Version 4; Google Cloud: signed URLs",
        "https://bucket.example.org/key?X-Amz-Expires=60&X-Amz-Signature=«{h64}»",
        "X-Amz-Security-Token=«IQoJ{w60}%2F%2F{w40}%3D»&x=1",
        no=("X-Amz-Signature=<signature>", "X-Amz-SignedHeaders=host"),
    ),
    "url-signature-plain": _of(
        "AWS: Signature Version 2, CloudFront",
        "?Expires=1700000000&Signature=«{w27}%3D»&Key-Pair-Id=K1",
        no=("?Signature=none", "def f(Signature=inspect_signature_of_2024)"),
    ),
    "password-short-name": _of(
        "names in configuration",
        "smtp:\n  pass: «{w20}»",
        '"pass": "«{w20}»"',
        no=(
            "PASS: tests/unit/test_2024_01_02.py",
            "pass: 12 of 14",
            "bypass: k8s-2024-node-0001",
            "pass: ${SMTP_PASS}",
        ),
    ),
    "password": _of(
        "names in configuration",
        '"password": "«{s9}»"',
        '{\\"db_password\\": \\"«{s9}»\\"}',
        "PASSWORD='«{s9}»'",
        "Passwort: '«{s9}»'",
        no=('"password": "changeme"', 'password = "${DB_PASSWORD}"', '"passwd": "string"'),
    ),
    "password-unquoted": _of(
        "environment dumps",
        "DB_PASSWORD=«{w9}»",
        "export SMTP_PASS=«{w9}»",
        "+password: «{w9}»",
        "\x1b[01;31m\x1b[Kpassword\x1b[m\x1b[K=«{w9}»",
        no=("DB_PASSWORD=$SECRET", "password: required|min:8|confirmed", "password = getpass.getpass()"),
    ),
    "password-entry": _of(
        "Kubernetes: env of a container",
        "- name: DB_PASSWORD\n  value: «{w9}»",
        '{"name": "DB_PASSWORD", "value": "«{w9}»"}',
        no=("- name: DB_PASSWORD\n  valueFrom:", "- name: DB_PASSWORD\n  value: changeme"),
    ),
    "named-secret": _of(
        "names in configuration",
        "API_KEY=«{w40}»",
        "AZURE_DEVOPS_PAT=«{w52}»",
        "  client_secret: '«{w40}»'",
        '     3→"refresh_token": "«{w40}»"',
        no=("API_KEY=<your-api-key>", "token = self.next_token()", "input_tokens: 1532"),
    ),
    "named-secret-quoted": _of(
        "Django: SECRET_KEY",
        "SECRET_KEY = '«django-insecure-{w20}!@#$%{w20}»'",
        no=("SECRET_KEY = 'change this'",),
    ),
    "named-secret-entry": _of(
        "Kubernetes: env of a container",
        "- name: API_TOKEN\n  value: «{w24}»",
        no=("- name: API_TOKEN\n  value: production",),
    ),
})  # fmt: skip
"""What is known of each rule, by its id."""
