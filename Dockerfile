# Holdfast in a container: docker build -t holdfast . ; see docs/operator/install.md
ARG PYTHON=3.13
FROM python:${PYTHON}-slim AS build
WORKDIR /source
RUN python -m venv /opt/holdfast
COPY requirements/run.txt requirements/
# Each package is the one whose hash is in the lock file, or the build fails.
RUN /opt/holdfast/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements/run.txt
COPY . .
RUN /opt/holdfast/bin/pip install --no-cache-dir --no-deps .

FROM python:${PYTHON}-slim
COPY --from=build /opt/holdfast /opt/holdfast
COPY etc/container/holdfast.toml /opt/holdfast/holdfast.toml
RUN useradd --system --uid 10001 --home-dir /var/lib/holdfast --create-home --shell /usr/sbin/nologin holdfast \
 && chmod 0700 /var/lib/holdfast
ENV PATH=/opt/holdfast/bin:$PATH PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /var/lib/holdfast
VOLUME /var/lib/holdfast
EXPOSE 8883 8084
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD ["holdfast", "ping", "--data-dir", "/var/lib/holdfast"]
ENTRYPOINT ["holdfast"]
CMD ["run", "--config", "/opt/holdfast/holdfast.toml"]
