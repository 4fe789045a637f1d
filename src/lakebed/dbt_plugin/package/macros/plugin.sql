{# A request to the plugin about a model: its settings, and the sources of lakebed that it reads. #}
{% macro request(action, node) %}
  {% set listed = [] %}
  {% for id in lakebed.upstream([node.unique_id]) if id in graph.sources %}
    {% set found = graph.sources[id] %}
    {% set meta = dict(found.meta, **found.config) %}
    {% if found.config.meta %}{% set meta = dict(meta, **found.config.meta) %}{% endif %}
    {% if meta.plugin == node.config.get('plugin', 'lakebed') %}
      {% do listed.append({
        'name': found.name, 'identifier': found.identifier, 'schema': found.schema, 'database': found.database,
        'meta': meta, 'tags': found.tags,
      }) %}
    {% endif %}
  {% endfor %}
  {{ return({
    'action': action, 'model': node.name, 'schema': node.schema, 'alias': node.alias, 'config': dict(node.config),
    'sources': listed,
  }) }}
{% endmacro %}


{# Hand a request to the plugin, which puts its answer into it. #}
{% macro send(request, relation) %}
  {% do adapter.store_relation(request.config.get('plugin', 'lakebed'), relation, [], '', '', request) %}
{% endmacro %}


{# The nodes whose rows these nodes read: their parents, and those of parents that are views or ephemeral. #}
{% macro upstream(ids) %}
  {% set seen = {} %}
  {% set queue = ids | list %}
  {% for id in queue %}
    {% set node = graph.nodes.get(id) %}
    {% for parent in (node.depends_on.nodes if node else []) if parent not in seen %}
      {% do seen.update({parent: true}) %}
      {% set model = graph.nodes.get(parent) %}
      {% if model and model.resource_type == 'model' and model.config.materialized in ('view', 'ephemeral') %}
        {% do queue.append(parent) %}
      {% endif %}
    {% endfor %}
  {% endfor %}
  {{ return(seen.keys() | list) }}
{% endmacro %}


{#
  Before a run: what the selected nodes read is there in DuckDB, whether or not this run makes it. Models that other
  runs have written become views of their tables, and sources are opened.
#}
{% macro show_upstream() %}
  {% if execute %}
    {% do lakebed.check_consumers() %}
    {% set selected = [] %}
    {% for id in selected_resources if id in graph.nodes %}{% do selected.append(id) %}{% endfor %}
    {% for id in (selected + lakebed.upstream(selected)) | unique if id in graph.nodes %}
      {% set node = graph.nodes[id] %}
      {% set is_model = node.resource_type == 'model' and node.config.materialized == 'lakebed' %}
      {% set request = lakebed.request('find', node) %}
      {% if is_model or request.sources %}
        {% set relation = api.Relation.create(
          database=node.database, schema=node.schema, identifier=node.alias, type='view') %}
        {% set existing = load_cached_relation(relation) if is_model else none %}
        {% do request.update({'is_model': is_model and (existing is none or existing.is_view)}) %}
        {% do lakebed.send(request, relation) %}
        {% if request.is_shown %}
          {% do adapter.cache_added(relation) %}
        {% elif request.is_model and existing is not none %}
          {% do adapter.drop_relation(existing) %}
        {% endif %}
      {% endif %}
    {% endfor %}
  {% endif %}
{% endmacro %}


{# A consumer's rows go to one model, since its position moves when that model has written them. #}
{% macro check_consumers() %}
  {% set readers = {} %}
  {% for node in graph.nodes.values() | sort(attribute='unique_id') if node.resource_type in ('model', 'snapshot') %}
    {% if node.config.materialized not in ('view', 'ephemeral') and node.config.enabled %}
      {% for id in lakebed.upstream([node.unique_id]) if id in graph.sources %}
        {% set found = graph.sources[id] %}
        {% set consumer = (found.config.meta or {}).consumer or found.config.consumer or found.meta.consumer %}
        {% if consumer %}
          {% if node.config.materialized != 'lakebed' %}
            {{ exceptions.raise_compiler_error(
              "the source " ~ found.source_name ~ "." ~ found.name ~ " has the consumer '" ~ consumer ~ "', and "
              ~ node.resource_type ~ " " ~ node.name ~ ", which reads it, is materialized as " ~ node.config.materialized
              ~ ": only models with materialized='lakebed' move a consumer on") }}
          {% endif %}
          {% set table = (found.config.meta or {}).table or found.config.table or found.meta.table %}
          {% set key = (table or found.schema ~ '.' ~ found.identifier) ~ ' ' ~ consumer %}
          {% if readers.get(key, node.name) != node.name %}
            {{ exceptions.raise_compiler_error(
              "the models " ~ readers[key] ~ " and " ~ node.name ~ " both read with the consumer '" ~ consumer
              ~ "' of the source " ~ found.source_name ~ "." ~ found.name
              ~ ": each row would go to one of them; give each a source with a consumer of its own") }}
          {% endif %}
          {% do readers.update({key: node.name}) %}
        {% endif %}
      {% endfor %}
    {% endif %}
  {% endfor %}
{% endmacro %}
